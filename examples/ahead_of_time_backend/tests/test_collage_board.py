"""The backend is put to the suite of those whose code cannot be run where it is compiled."""

from __future__ import annotations

import pytest
import tvm
from tvm.relax import op

from collage.backends.contract import Backend, BackendTarget
from collage.testing import AheadOfTimeContract, PatternCase, Refusal, constant, graph

# With the cross compiler of a board at hand: its triple, and its compiler among the options.
DEVICE = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "knl"}


class TestBoardContract(AheadOfTimeContract):
    backend_name = "board"

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, backend: Backend) -> BackendTarget:
        """For a processor that few have."""
        return BackendTarget.of("board", tvm.target.Target(DEVICE), {"flags": "-march=knl"})

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        """One graph for every pattern."""
        weights = constant(24, 32)
        return [
            PatternCase("board.matmul", graph([(8, 24)], lambda _, x: op.matmul(x, weights))),
            PatternCase("board.add", graph([(8, 8)] * 2, lambda _, x, y: op.add(x, y))),
            PatternCase("board.multiply", graph([(8, 8)] * 2, lambda _, x, y: op.multiply(x, y))),
            PatternCase("board.relu", graph([(8, 8)], lambda _, x: op.nn.relu(x))),
            PatternCase("board.tanh", graph([(3, 5)], lambda _, x: op.tanh(x))),
        ]

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        """What the pattern matches and the predicate must refuse, for the reason it gives."""
        doubles = graph([(3, 5)], lambda _, x: op.tanh(x), "float64")
        return [Refusal("board.tanh", doubles, "float64 is not float32")]
