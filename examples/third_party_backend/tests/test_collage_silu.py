"""The backend is put to the suite that every backend of collage passes, and its option is tried."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget
from collage.backends.contract.registry import backend_names, get_backend
from collage.testing import BackendContract, PatternCase, Refusal, graph, verdicts


def silu(*shape: int, dtype: str = "float32") -> tvm.IRModule:
    return graph([shape], lambda _, x: op.nn.silu(x), dtype)


def silu_in_two_steps(*shape: int) -> tvm.IRModule:
    def body(emit, x: relax.Expr) -> relax.Expr:
        return op.multiply(x, emit(op.sigmoid(x)))

    return graph([shape], body)


class TestSiluContract(BackendContract):
    backend_name = "silu"

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        """At least one graph for every pattern, with the range of its inputs."""
        return [
            PatternCase("silu.silu", silu(3, 7, 999), low=-9, high=9),
            PatternCase("silu.silu", silu_in_two_steps(33, 65), low=-9, high=9),
        ]

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        """Large enough for all threads."""
        return PatternCase("silu.silu", silu(1024, 1024))

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        """What the pattern matches and the predicate must refuse, for the reason it gives."""
        return [
            Refusal("silu.silu", silu(3, 5), "15 elements of float32: too few"),
            Refusal("silu.silu", silu(64, 64, dtype="float64"), "not float32"),
        ]


def test_listed_after_the_builtin_backends() -> None:
    names = backend_names()
    assert names[:3] == ["tvm", "onednn", "openblas"]
    assert "silu" in names[3:]


@pytest.mark.parametrize(("minimum", "accepted"), [(15, True), (16, False)])
def test_option_reaches_the_predicate(minimum: int, accepted: bool) -> None:
    backend = get_backend("silu")
    options = backend.parse_options({"min_elements": minimum})
    target = BackendTarget("silu", tvm.target.Target("llvm"), options)
    (triple,) = backend.patterns(target)
    (verdict,) = verdicts(triple, silu(3, 5)["main"])
    assert bool(verdict) is accepted
