"""oneDNN under the contract that every backend keeps."""

from __future__ import annotations

import pytest
from tvm.relax import op

from collage.backends.base import ExternalBackend
from collage.backends.registry import get_backend
from tests.backends_tests.graphs import constant, graph
from tests.backends_tests.onednn_cases import IMAGE, all_cases
from tests.contracts.backend_contract import BackendContract, PatternCase, Refusal


class TestOnednnContract(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> ExternalBackend:
        return get_backend("onednn")  # type: ignore[return-value]

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        return all_cases()

    @pytest.fixture(scope="class")
    @classmethod
    def needing_context(cls) -> set[str]:
        """A residual on the left: TVM matches ``add`` in either order, the other pattern first.

        They serve graphs whose both operands are chains, of which only the right one is free.
        """
        adds = ("radd", "bias_radd", "bias_radd_relu", "bias_radd_clip")
        return {f"onednn.{base}_{add}" for base in ("matmul", "conv2d") for add in adds}

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        weights = constant(64, 64, 3, 3, scale=0.05)
        mod = graph([(1, 64, 56, 56)], lambda _, x: op.nn.conv2d(x, weights, padding=(1, 1)))
        return PatternCase("onednn.conv2d", mod)

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        def per_row(emit, x):  # type: ignore[no-untyped-def]
            return op.add(emit(op.matmul(x, constant(8, 6))), constant(4, 1))

        vector = graph([(4, 8)], lambda _, x: op.matmul(x, constant(8)))
        double = graph([IMAGE], lambda _, x: op.nn.relu(x), "float64")
        uneven = graph([IMAGE], lambda _, x: op.nn.adaptive_avg_pool2d(x, (3, 5)))
        both = graph([(3, 1), (1, 4)], lambda _, a, b: op.add(a, b))
        first = graph([(4, 8)], lambda _, x: op.nn.layer_norm(x, constant(4), constant(4), [0]))
        edge = graph([(4, 8)], lambda _, x: op.nn.pad(x, [1, 1, 0, 0], "reflect"))
        return [
            Refusal("onednn.matmul_bias", graph([(4, 8)], per_row), "per channel"),
            Refusal("onednn.matmul", vector, "two dimensions"),
            Refusal("onednn.relu", double, "float64"),
            Refusal("onednn.relu", graph([(0, 3)], lambda _, x: op.nn.relu(x)), "empty"),
            Refusal("onednn.adaptive_avg_pool2d", uneven, "uneven"),
            Refusal("onednn.add", both, "broadcast"),
            Refusal("onednn.layer_norm", first, "not the last"),
            Refusal("onednn.pad", edge, "reflect"),
        ]
