"""What backends that take whole regions keep of the contract with the same cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tvm
from tvm.relax import op

from collage.testing.backend_cases import PatternCase
from collage.testing.backend_contract import BackendContract
from collage.testing.graphs import constant, graph
from tests.backends_tests.whole_regions.cases import NOT_ALONE, cases


def one(body: Callable[..., Any], *shapes: Sequence[int], dtype: str = "float32") -> tvm.IRModule:
    """A graph of one operator, to be refused."""
    return graph(list(shapes), lambda emit, *x: body(*x), dtype)


class RegionContract(BackendContract):
    """The suite, with a case for every operator and a convolution that is worth two threads."""

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        return cases(cls.backend_name)

    @pytest.fixture(scope="class")
    @classmethod
    def needing_context(cls) -> set[str]:
        return {f"{cls.backend_name}.{name}" for name in NOT_ALONE}

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        weights = constant(128, 128, 3, 3, scale=0.03)
        mod = graph([(1, 128, 56, 56)], lambda emit, x: op.nn.conv2d(x, weights, padding=(1, 1)))
        return PatternCase(f"{cls.backend_name}.conv2d", mod)
