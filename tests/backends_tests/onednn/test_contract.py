"""oneDNN keeps the backends' contract; every pattern runs alone and refuses with a reason."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.backends.onednn.patterns import pattern_table
from collage.backends.relax.recurrent import Recurrence
from collage.testing.backend_cases import PatternCase, Refusal
from collage.testing.backend_contract import BackendContract
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.cases import case
from tests.backends_tests.recurrent_layers import layer
from tests.object_cache import cache_with_objects

PICTURE = (2, 6, 9, 8)


def rounded_per_channel(emit: Emit, x: relax.Expr) -> relax.Expr:
    steps, zero = relax.const(np.full(6, 0.5, "float32")), relax.const(np.int8(0))
    there = emit(op.quantize(x, steps, zero, axis=1, out_dtype="int8"))
    return op.dequantize(there, steps, zero, axis=1)


class TestOnednnContract(BackendContract):
    backend_name = "onednn"

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls, tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
        """The runtime takes half a minute to compile: other tests need it, too."""
        folder = tmp_path_factory.mktemp("contract")
        return BuildContext(cache_with_objects(folder), folder / "work", num_threads=2)

    @pytest.fixture(scope="class")
    @classmethod
    def cases(cls) -> list[PatternCase]:
        return [case(triple.name) for triple in pattern_table()]

    @pytest.fixture(scope="class")
    @classmethod
    def parallel_case(cls) -> PatternCase:
        weights = constant(128, 128, 3, 3, scale=0.03)
        mod = graph([(1, 128, 56, 56)], lambda emit, x: op.nn.conv2d(x, weights, padding=(1, 1)))
        return PatternCase("onednn.conv2d", mod)

    @pytest.fixture(scope="class")
    @classmethod
    def refusals(cls) -> list[Refusal]:
        def one(body, *shapes, dtype="float32"):  # type: ignore[no-untyped-def]
            return graph(list(shapes), body, dtype)

        return [
            Refusal(
                "onednn.add", one(lambda e, a, b: op.add(a, b), (3,), (3,), dtype="int64"), "int64"
            ),
            Refusal(
                "onednn.multiply",
                one(lambda e, a, b: op.multiply(a, b), (3, 1), (1, 4)),
                "both operands",
            ),
            Refusal(
                "onednn.matmul", one(lambda e, a, b: op.matmul(a, b), (4,), (4, 2)), "dimensions"
            ),
            Refusal(
                "onednn.adaptive_avg_pool2d",
                one(lambda e, x: op.nn.adaptive_avg_pool2d(x, (4, 3)), PICTURE),
                "uneven",
            ),
            Refusal(
                "onednn.avg_pool2d",
                one(
                    lambda e, x: op.nn.avg_pool2d(
                        x, (4, 4), (2, 2), (1, 1), ceil_mode=True, count_include_pad=True
                    ),
                    (1, 4, 11, 9),
                ),
                "beyond the padding",
            ),
            Refusal(
                "onednn.layer_norm",
                one(lambda e, x: op.nn.layer_norm(x, constant(6), constant(6), axes=[1]), PICTURE),
                "not the last",
            ),
            Refusal(
                "onednn.strided_slice",
                one(lambda e, x: op.strided_slice(x, [1], [0], [6], [2]), PICTURE),
                "steps",
            ),
            Refusal(
                "onednn.pad",
                one(lambda e, x: op.nn.pad(x, (0, 0, 0, 0, 1, 1, 1, 1), "reflect"), PICTURE),
                "reflect",
            ),
            Refusal(
                "onednn.resize2d",
                graph(
                    [(2, 6, 9, 8)],
                    lambda e, x: op.image.resize2d(
                        x, (18, 16), coordinate_transformation_mode="align_corners"
                    ),
                ),
                because="by align_corners coordinates",
            ),
            Refusal(
                "onednn.conv2d_add",
                one(
                    lambda e, x, r: op.add(e(op.nn.conv2d(x, constant(4, 6, 1, 1))), r),
                    PICTURE,
                    (1, 4, 1, 1),
                ),
                "broadcast",
            ),
            Refusal(
                "onednn.conv2d_bias",
                one(
                    lambda e, x: op.add(
                        e(op.nn.conv2d(x, constant(4, 6, 1, 1))), constant(1, 1, 9, 8)
                    ),
                    PICTURE,
                ),
                "per channel",
            ),
            Refusal(
                "onednn.recurrent",
                layer(Recurrence("gru", "forward", 4, 2, 5, "float32", True), 3, bias=False),
                "end early",
            ),
            Refusal(
                "onednn.recurrent_bias",
                layer(Recurrence("lstm", "forward", 4, 2, 5, "float32", False, stepped=True), 3),
                "256 steps",
            ),
            Refusal(
                "onednn.round_to_bytes",
                one(rounded_per_channel, PICTURE),
                "not one for all",
            ),
            Refusal(
                "onednn.sigmoid",
                one(lambda e, x: op.sigmoid(x), (1, 1, 1, 1, 1, 1, 2)),
                "dimensions",
            ),
        ]
