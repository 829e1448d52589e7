"""The example backend under the contract; run by test_third_party.py where it is installed."""

from __future__ import annotations

import pytest
import tvm
from tvm.relax import op

from collage.backends.contract.base import BackendTarget, ExternalBackend
from collage.backends.contract.registry import backend_names, get_backend
from collage.testing.backend_contract import BackendContract, PatternCase, Refusal, verdicts
from collage.testing.graphs import graph


def test_listed_after_the_builtin_backends() -> None:
    names = backend_names()
    assert names[:3] == ["tvm", "onednn", "openblas"]
    assert "silu" in names[3:]


def test_option_reaches_the_predicate() -> None:
    backend = get_backend("silu")
    small = graph([(3, 5)], lambda _, x: op.nn.silu(x))
    for minimum, accepted in ((15, True), (16, False)):
        options = backend.parse_options({"min_elements": minimum})
        target = BackendTarget("silu", tvm.target.Target("llvm"), options)
        (triple,) = backend.patterns(target)
        (verdict,) = verdicts(triple, small["main"])
        assert bool(verdict) is accepted


class TestSiluContract(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> ExternalBackend:
        return get_backend("silu")  # type: ignore[return-value]

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        def chain(emit, x):  # type: ignore[no-untyped-def]
            return op.multiply(x, emit(op.sigmoid(x)))

        return [
            PatternCase("silu.silu", graph([(3, 7, 999)], lambda _, x: op.nn.silu(x)), -9, 9),
            PatternCase("silu.silu", graph([(33, 65)], chain), -9, 9),
        ]

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        return PatternCase("silu.silu", graph([(1024, 1024)], lambda _, x: op.nn.silu(x)))

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        small = graph([(3, 5)], lambda _, x: op.nn.silu(x))
        double = graph([(64, 64)], lambda _, x: op.nn.silu(x), "float64")
        return [
            Refusal("silu.silu", small, "15 elements of float32: too few"),
            Refusal("silu.silu", double, "not float32"),
        ]
