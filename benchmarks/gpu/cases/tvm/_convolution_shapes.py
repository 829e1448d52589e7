"""Convolutions at the sizes that networks have, of every rank, grouped and transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from benchmarks.gpu.cases.tvm._shape import Emit, Shape

op = relax.op


def convolutions() -> list[Shape]:
    def conv(rank: int, out: int, depth: int, kernel: int, groups: int = 1, **attrs: Any) -> Any:
        operator = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[rank]

        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            weights = w(out, depth // groups, *[kernel] * rank)
            return op.nn.relu(emit(operator(x, weights, groups=groups, **attrs)))

        return body

    def transposed(
        rank: int, depth: int, out: int, kernel: int, groups: int = 1, **attrs: Any
    ) -> Any:
        operator = {
            1: op.nn.conv1d_transpose,
            2: op.nn.conv2d_transpose,
            3: op.nn.conv3d_transpose,
        }[rank]

        def body(emit: Emit, w: Any, x: relax.Var) -> relax.Expr:
            weights = w(depth, out // groups, *[kernel] * rank)
            return op.nn.relu(emit(operator(x, weights, groups=groups, **attrs)))

        return body

    def work(*factors: int) -> float:
        return 2.0 * float(np.prod(factors))

    three = ("float16", "bfloat16", "float32")
    return [
        Shape(
            "conv3d_resnet",
            [((1, 64, 8, 56, 56), "")],
            conv(3, 64, 64, 3, padding=(1,) * 6),
            work(64, 8 * 56 * 56, 64 * 27),
            three,
        ),
        Shape(
            "conv3d_stem",
            [((1, 3, 16, 112, 112), "")],
            conv(3, 64, 3, 3, strides=(1, 2, 2), padding=(1,) * 6),
            work(64, 16 * 56 * 56, 3 * 27),
        ),
        Shape(
            "conv1d_speech",
            [((1, 512, 1500), "")],
            conv(1, 512, 512, 3, padding=(1, 1)),
            work(512, 1500, 512 * 3),
            three,
        ),
        Shape(
            "conv1d_dilated",
            [((1, 256, 4000), "")],
            conv(1, 256, 256, 3, padding=(4, 4), dilation=(4,)),
            work(256, 4000, 256 * 3),
        ),
        Shape(
            "conv1d_wave",
            [((1, 1, 80000), "")],
            conv(1, 512, 1, 10, strides=(5,)),
            work(512, 15999, 10),
        ),
        Shape(
            "conv1d_depthwise",
            [((1, 512, 1500), "")],
            conv(1, 512, 512, 31, groups=512, padding=(15, 15)),
        ),
        Shape(
            "conv3d_depthwise",
            [((1, 96, 8, 28, 28), "")],
            conv(3, 96, 96, 3, groups=96, padding=(1,) * 6),
        ),
        Shape(
            "conv1d_grouped",
            [((1, 768, 1000), "")],
            conv(1, 768, 768, 128, groups=16, padding=(64, 64)),
            work(768, 1001, 48 * 128),
        ),
        Shape(
            "conv2d_grouped",
            [((8, 256, 28, 28), "")],
            conv(2, 256, 256, 3, groups=32, padding=(1,) * 4),
            work(8, 256, 28 * 28, 8 * 9),
        ),
        Shape(
            "transposed2d_dcgan_first",
            [((1, 100, 1, 1), "")],
            transposed(2, 100, 512, 4),
            work(100, 512, 16),
        ),
        Shape(
            "transposed2d_dcgan",
            [((1, 512, 8, 8), "")],
            transposed(2, 512, 256, 4, strides=(2, 2), padding=(1,) * 4),
            work(64, 512, 256, 16),
            three,
        ),
        Shape(
            "transposed2d_dcgan_last",
            [((1, 64, 32, 32), "")],
            transposed(2, 64, 3, 4, strides=(2, 2), padding=(1,) * 4),
            work(1024, 64, 3, 16),
        ),
        Shape(
            "transposed2d_unet",
            [((1, 256, 64, 64), "")],
            transposed(2, 256, 128, 2, strides=(2, 2)),
            work(4096, 256, 128, 4),
        ),
        Shape(
            "transposed2d_odd",
            [((2, 20, 9, 7), "")],
            transposed(2, 20, 12, 3, strides=(2, 3), padding=(1, 0, 1, 2), output_padding=(1, 0)),
        ),
        Shape(
            "transposed2d_dilated",
            [((1, 16, 11, 13), "")],
            transposed(2, 16, 24, 3, strides=(2, 2), dilation=(3, 2), padding=(1,) * 4),
        ),
        Shape(
            "transposed2d_grouped",
            [((1, 32, 14, 14), "")],
            transposed(2, 32, 64, 4, groups=4, strides=(2, 2), padding=(1,) * 4),
        ),
        Shape(
            "transposed2d_depthwise",
            [((1, 64, 28, 28), "")],
            transposed(2, 64, 64, 4, groups=64, strides=(2, 2), padding=(1,) * 4),
        ),
        Shape(
            "transposed1d_vocoder",
            [((1, 256, 800), "")],
            transposed(1, 256, 128, 16, strides=(8,), padding=(4, 4)),
            work(800, 256, 128, 16),
            three,
        ),
        Shape(
            "transposed3d",
            [((1, 64, 8, 16, 16), "")],
            transposed(3, 64, 32, 2, strides=(2, 2, 2)),
            work(8 * 256, 64, 32, 8),
        ),
    ]
