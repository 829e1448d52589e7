"""An answer where every fast kernel of an operator fails: the simplest one, from the search on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, NativeBackend
from collage.backends.link import stage_libraries
from collage.backends.tvm.cpu.schedules import SCHEDULE_ATTR
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.reference import evaluate
from collage.passes import lower
from collage.pipeline import find_covers
from collage.search import Candidate, DataflowGraph, make_partitioning
from collage.search.rules import LAST_RESORT
from collage.targets import resolve_targets
from collage.testing import graph
from tests.object_cache import cache_with_objects


class _OnlyPlainSoftmax(CostModel):
    """Whatever is fast and computes a softmax crashes."""

    def estimate(self, workloads: Any, targets: Any) -> list[Cost]:
        fails = Cost(CostStatus.CRASHED, reason="the candidate died of SIGSEGV")
        return [
            fails
            if "softmax" in workload.describe() and target.option_dict()["schedule"] != "plain"
            else Cost(CostStatus.VALID, 1e-3)
            for workload, target in zip(workloads, targets, strict=True)
        ]


def _chain(emit: Any, x: Any) -> Any:
    return op.exp(emit(op.nn.softmax(emit(op.tanh(x)))))


def test_the_search_goes_on_with_the_simplest_kernel() -> None:
    mod = graph([(4, 64)], _chain)
    dataflow = DataflowGraph.from_function(mod["main"])
    costs = WorkloadCosts(mod, dataflow, _OnlyPlainSoftmax())
    covers = find_covers(dataflow, resolve_targets(["llvm"]), "search", costs)
    chosen = covers.contenders[0].partitioning.candidates
    resorts = [c for c in chosen if c.rule == LAST_RESORT]
    assert [dataflow.op_name(c.nodes.bit_length() - 1) for c in resorts] == ["nn.softmax"]
    assert any("SIGSEGV" in cost.reason for cost in costs.costs.values())


@pytest.mark.parametrize("device", ["llvm", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_simple_and_fast_kernels_stand_in_one_module(device: str, tmp_path: Path) -> None:
    kind = {"kind": "cuda", "arch": "sm_90a"} if device == "cuda" else device
    (native,) = resolve_targets([kind])
    lowered = _lowered(_beside_each_other(native), native, tmp_path)
    by_name = {gv.name_hint: func for gv, func in lowered.functions.items()}
    fast, simple = by_name["softmax"], by_name["tvm_0_softmax"]
    if device == "llvm":
        assert str(fast.attrs[SCHEDULE_ATTR]) == "rowwise" and SCHEDULE_ATTR not in simple.attrs
    else:
        assert "Fallback" in str(simple.attrs[SCHEDULE_ATTR])
        assert "Fallback" not in str(fast.attrs[SCHEDULE_ATTR])


def _beside_each_other(native: BackendTarget) -> tvm.IRModule:
    """Two partitions of one operator each, the first of them in the simplest way."""
    backend = native.implementation
    assert isinstance(backend, NativeBackend)
    simple = backend.last_resort(native)
    assert simple is not None
    mod = graph([(8, 64)], _two)
    dataflow = DataflowGraph.from_function(mod["main"])
    parts = [Candidate(0b01, simple), Candidate(0b10, native)]
    return lower(mod, dataflow, make_partitioning(dataflow, parts))


def _lowered(mod: tvm.IRModule, native: BackendTarget, folder: Path) -> tvm.IRModule:
    backend = native.implementation
    assert isinstance(backend, NativeBackend)
    return backend.lower(mod, native, BuildContext(cache_with_objects(folder), folder / "work"))


def _two(emit: Any, x: Any) -> Any:
    return op.nn.softmax(emit(op.nn.softmax(x, axis=1)), axis=1)


def test_they_compute_the_same(tmp_path: Path) -> None:
    (native,) = resolve_targets(["llvm"])
    context = BuildContext(cache_with_objects(tmp_path), tmp_path / "work")
    partitioned = _beside_each_other(native)
    library = compile_module(partitioned, [native], tmp_path / "model.so", context)
    stage_libraries(library, copy=False)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
    data = np.random.default_rng().standard_normal((8, 64), np.float32)
    got = machine["main"](tvm.runtime.tensor(data)).numpy()
    (wanted,) = evaluate(graph([(8, 64)], _two), [data])
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
