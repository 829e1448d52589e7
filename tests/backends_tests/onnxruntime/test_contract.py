"""onnxruntime keeps the backends' contract; every pattern runs alone, and refuses with a reason."""

from __future__ import annotations

import pytest
from tvm.relax import op

from collage.backends.relax.recurrent import Recurrence
from collage.testing.backend_cases import PatternCase, Refusal
from collage.testing.graphs import constant
from tests.backends_tests.recurrent_layers import layer
from tests.backends_tests.whole_regions.cases import PICTURE, case, cases
from tests.backends_tests.whole_regions.contract import RegionContract, one
from tests.backends_tests.whole_regions.regions import Regions

pytestmark = Regions("onnxruntime").installed

_OTHERS = (
    *("floor_mod", "round_to_bytes", "product_in_steps", "astype"),
    *("adaptive_avg_pool2d", "adaptive_avg_pool3d"),
)
"""What it is not given, or not in float32, half precision or unequal parts."""


class TestOnnxruntimeContract(RegionContract):
    backend_name = "onnxruntime"

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        both = [(3, 37)]
        own = [
            case("onnxruntime.astype", both, lambda x: op.astype(x, "int32")),
            case("onnxruntime.floor_mod", [(3, 37), (37,)], op.floor_mod, 1, 9, "int64"),
        ]
        for rank, sides in ((2, (6, 10)), (3, (4, 6, 10))):
            pool = getattr(op.nn, f"adaptive_avg_pool{rank}d")
            wanted = (2, 5) if rank == 2 else (2, 3, 5)
            name = f"onnxruntime.adaptive_avg_pool{rank}d"
            own.append(case(name, [(2, 4, *sides)], lambda x, f=pool, w=wanted: f(x, w)))
        others = [f"onnxruntime.{name}" for name in _OTHERS]
        return [one for one in cases("onnxruntime") if one.pattern not in others] + own

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        return [
            Refusal("onnxruntime.add", one(op.add, (3,), (3,), dtype="float16"), "float16"),
            Refusal("onnxruntime.exp", one(op.exp, (3, 0)), "empty"),
            Refusal("onnxruntime.exp", one(op.exp, (1,) * 8 + (2,)), "dimensions"),
            Refusal(
                "onnxruntime.floor_mod", one(op.floor_mod, (3,), (3,)), "supported: int32, int64"
            ),
            Refusal(
                "onnxruntime.layer_norm",
                one(lambda x: op.nn.layer_norm(x, constant(4), constant(4), [1]), PICTURE),
                "not the last ones",
            ),
            Refusal(
                "onnxruntime.rms_norm",
                one(lambda x: op.nn.rms_norm(x, constant(9, 11), [-2, -1]), PICTURE),
                "not the last one",
            ),
            Refusal(
                "onnxruntime.group_norm",
                one(
                    lambda x: op.nn.group_norm(x, constant(11), constant(11), 1, 3, [1, 2]),
                    PICTURE,
                ),
                "with channels at 3",
            ),
            Refusal(
                "onnxruntime.adaptive_avg_pool2d",
                one(lambda x: op.nn.adaptive_avg_pool2d(x, (4, 5)), PICTURE),
                "not shared out equally",
            ),
            Refusal(
                "onnxruntime.where",
                one(op.where, (3, 5), (3, 5), (3, 5), dtype="bool"),
                "truth values",
            ),
            Refusal(
                "onnxruntime.recurrent_bias",
                layer(Recurrence("lstm", "forward", 4, 2, 5, "float32", False, stepped=True), 3),
                "256 steps",
            ),
        ]
