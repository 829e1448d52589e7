"""OpenVINO keeps the backends' contract; every pattern runs alone and refuses with a reason."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.relax.recurrent import Recurrence, recurrent
from collage.testing.backend_cases import Refusal
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.openvino.support import installed
from tests.backends_tests.recurrent_layers import layer
from tests.backends_tests.whole_regions.cases import PICTURE
from tests.backends_tests.whole_regions.contract import RegionContract, one

pytestmark = installed


class TestOpenvinoContract(RegionContract):
    backend_name = "openvino"

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        return [
            Refusal("openvino.add", one(op.add, (3,), (3,), dtype="int64"), "int64"),
            Refusal("openvino.exp", one(op.exp, (3, 0)), "empty"),
            Refusal("openvino.exp", one(op.exp, (1,) * 8 + (2,)), "dimensions"),
            Refusal(
                "openvino.conv2d",
                one(lambda x, w: op.nn.conv2d(x, w), PICTURE, (4, 4, 1, 1)),
                "no constant",
            ),
            Refusal(
                "openvino.recurrent_bias",
                graph([(5, 2, 4)], _gru_of_biased_steps),
                "not one value per column",
            ),
            Refusal(
                "openvino.recurrent_bias",
                layer(Recurrence("lstm", "forward", 4, 2, 5, "float32", False, stepped=True), 3),
                "256 steps",
            ),
            Refusal(
                "openvino.max_pool2d",
                one(lambda x: op.nn.max_pool2d(x, (2, 2), dilation=(2, 2)), PICTURE),
                "dilated",
            ),
            Refusal(
                "openvino.pad",
                one(lambda x: op.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1), "circular"), PICTURE),
                "circular",
            ),
        ]


def _gru_of_biased_steps(emit: Emit, x: relax.Expr) -> relax.Expr:
    taken = emit(op.add(emit(op.matmul(x, constant(4, 9))), constant(5, 1, 9)))
    return recurrent("gru", "forward", [taken, constant(1, 3, 9), constant(1, 2, 3)])
