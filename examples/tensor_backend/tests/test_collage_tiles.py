"""The backend is put to the suite of those that lower to tensor programs, and to a whole search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.compile import compile_module, used_targets
from collage.backends.contract import BackendTarget
from collage.testing import PatternCase, Refusal, TensorContract, constant, graph, verdicts
from collage.testing.backend_cases import constants_of


def product(rows: int, inner: int, columns: int, dtype: str = "float32") -> tvm.IRModule:
    weights = constant(inner, columns, dtype=dtype)
    return graph([(rows, inner)], lambda _, x: op.matmul(x, weights), dtype)


def product_relu(rows: int, inner: int, columns: int) -> tvm.IRModule:
    weights = constant(inner, columns)
    return graph([(rows, inner)], lambda emit, x: op.nn.relu(emit(op.matmul(x, weights))))


class TestTilesContract(TensorContract):
    backend_name = "tiles"

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        """At least one graph for every pattern."""
        return [
            PatternCase("tiles.matmul", product(8, 24, 32)),
            PatternCase("tiles.matmul", product(4, 1, 16)),
            PatternCase("tiles.matmul_relu", product_relu(12, 17, 48)),
        ]

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        """Large enough for all threads."""
        return PatternCase("tiles.matmul", product(256, 256, 256))

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        """What the pattern matches and the predicate must refuse, for the reason it gives."""
        return [
            Refusal("tiles.matmul", product(6, 8, 16), "(6, 16) of float32 does not divide"),
            Refusal("tiles.matmul", product(8, 8, 24), "(8, 24) of float32 does not divide"),
            Refusal("tiles.matmul", product(8, 8, 16, "float64"), "float64"),
        ]


def test_takes_part_in_a_search_under_its_own_name_twice(tmp_path: Path) -> None:
    mod = product_relu(64, 128, 64)
    targets = ["llvm", "tiles", {"kind": "tiles", "name": "tall", "rows": 8}]
    result = collage.optimize(mod, targets, log=tmp_path / "log.jsonl")
    report = result.report
    measured = {a.backend for a in report.alternatives if a.median_sec is not None}
    assert {"tiles", "tall"} <= measured | {p.backend for p in report.partitions}
    rows = {row.name: row.median_sec for row in report.end_to_end}
    assert {"single:tiles", "single:tall", "single:tvm"} <= set(rows)
    assert all(seconds is not None for seconds in rows.values())
    # Whoever wins: each of them alone computes the product, of rows that it takes.
    x = np.random.default_rng().standard_normal((64, 128), np.float32)
    (weights,) = constants_of(mod)
    expected = np.maximum(x.astype(np.float64) @ weights.astype(np.float64), 0.0)
    for name in ("tiles", "tall"):
        module = result.alternatives[f"single:{name}"]
        assert [t.name for t in used_targets(module, result.targets)] == [name]
        output = tmp_path / name / "model.so"
        library = compile_module(module, result.targets, output, result.context)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.path)), tvm.cpu())
        outputs = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("rows", "accepted"), [(4, True), (8, False)])
def test_option_reaches_the_predicate(rows: int, accepted: bool) -> None:
    target = BackendTarget.of("tiles", tvm.target.Target("llvm"), {"rows": rows})
    triple = target.implementation.patterns(target)[0]
    (verdict,) = verdicts(triple, product(12, 8, 16)["main"])
    assert bool(verdict) is accepted
