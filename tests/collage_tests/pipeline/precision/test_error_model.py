"""What fewer digits do, by the processor that would compute with them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from collage.cost.reference import Sample
from collage.end_to_end import Contender
from collage.pipeline.precision.contenders import promised_within
from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.precision.targets import in_precisions
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.targets import resolve_targets
from collage.testing.graphs import constant, graph


@pytest.mark.parametrize("flags, form", [({"avx2"}, "float32"), ({"amx_bf16"}, "bfloat16")])
def test_products_are_rounded_to_what_a_processor_has(
    flags: set[str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.backends.onednn.backend.cpu_flags_here", lambda: frozenset(flags))
    mod = graph([(4, 8)], lambda emit, x: op.matmul(x, constant(8, 3)))
    x = np.random.default_rng().standard_normal((4, 8)).astype(np.float32)
    targets = in_precisions(resolve_targets(["llvm", "onednn"]), ["bfloat16"])
    samples = [Sample.of([x], [np.zeros((4, 3), np.float32)])]
    found = ErrorModel.of(0.1, mod, DataflowGraph.from_function(mod["main"]), targets, samples)
    assert found.form == form
    assert list(found.squares) == ([0] if form == "bfloat16" else [])


def test_switches_that_keep_to_the_error_are_promised_the_least_exact_first() -> None:
    exact, half, single = resolve_targets(
        ["llvm", {"kind": "openvino", "precision": "bfloat16"}, "onednn"]
    )
    model = ErrorModel(0.01, "bfloat16", {0: 36e-6, 1: 64e-6, 2: 4e-4})
    whole, first, second = (
        Contender(name, Partitioning((Candidate(nodes, half), Candidate(0b111 & ~nodes, exact))))
        for name, nodes in (("all", 0b111), ("first", 0b001), ("both", 0b011))
    )
    plain = Contender("plain", Partitioning((Candidate(0b111, single),)))
    found = promised_within([plain, whole, first, second], model)
    assert [one.name for one in found] == ["both", "first"]
