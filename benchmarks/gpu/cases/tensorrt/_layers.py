"""Cases of the TensorRT backend: pools, convolutions, products, whole blocks, int8."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.tensorrt._case import LAST, PICTURE, case, weights


def layers() -> list[CudaCase]:
    """All of them, under unique names."""
    return [*_pictures(), *_convolutions(), *_products(), *_regions(), *_quantized()]


def _pictures() -> Iterator[CudaCase]:
    for layout, shape in (("NCHW", PICTURE), ("NHWC", LAST)):
        for kind in ("max", "avg"):
            pool = getattr(op.nn, f"{kind}_pool2d")
            yield case(f"{kind}_pool2d", [shape], lambda x, f=pool, y=layout: f(
                x, (3, 3), (2, 2), (1, 1), layout=y, ceil_mode=True
            ), layout)  # fmt: skip
        yield case("avg_pool2d", [shape], lambda x, y=layout: op.nn.avg_pool2d(
            x, (3, 2), (1, 1), (1, 0), layout=y, count_include_pad=True
        ), f"include-{layout}")  # fmt: skip
        for size in ((1, 1), (3, 11)):
            yield case("adaptive_avg_pool2d", [shape], lambda x, y=layout, s=size: (
                op.nn.adaptive_avg_pool2d(x, s, y)
            ), f"{layout}-{size[0]}")  # fmt: skip
    line, cube = (2, 4, 9), (1, 2, 4, 6, 8)
    for kind in ("max", "avg"):
        one, three = (getattr(op.nn, f"{kind}_pool{rank}d") for rank in (1, 3))
        yield case(f"{kind}_pool1d", [line], lambda x, f=one: f(x, 3, 2, 1))
        yield case(f"{kind}_pool3d", [cube], lambda x, f=three: f(x, (2, 2, 2), (2, 2, 2)))
    yield case("adaptive_avg_pool1d", [line], lambda x: op.nn.adaptive_avg_pool1d(x, 3))
    yield case("adaptive_avg_pool3d", [cube], lambda x: op.nn.adaptive_avg_pool3d(x, (2, 3, 4)))


def _convolutions() -> Iterator[CudaCase]:
    last = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    for dtype in ("float32", "float16", "bfloat16"):
        kernel = weights(8, 3, 3, 4, dtype=dtype)
        yield case("conv2d", [(LAST, dtype)], lambda x, k=kernel: op.nn.conv2d(
            x, k, padding=(0, 1, 2, 1), **last
        ), "NHWC")  # fmt: skip
    yield case("conv2d", [PICTURE], lambda x: op.nn.conv2d(
        x, weights(8, 2, 3, 3), strides=2, padding=1, groups=2
    ), "groups")  # fmt: skip
    yield case("conv2d", [LAST], lambda x: op.nn.conv2d(
        x, weights(4, 3, 3, 1), padding=2, dilation=2, groups=4, **last
    ), "depthwise-NHWC")  # fmt: skip
    line, cube = (2, 4, 9), (1, 2, 4, 6, 8)
    yield case("conv1d", [line], lambda x: op.nn.conv1d(
        x, weights(8, 4, 3), padding=(1, 2), dilation=2
    ))  # fmt: skip
    yield case("conv3d", [cube], lambda x: op.nn.conv3d(x, weights(4, 2, 3, 3, 3), padding=1))
    yield case("conv1d_transpose", [line], lambda x: op.nn.conv1d_transpose(
        x, weights(4, 3, 3), strides=2
    ))  # fmt: skip
    yield case("conv2d_transpose", [PICTURE], lambda x: op.nn.conv2d_transpose(
        x, weights(4, 3, 3, 3), strides=2, padding=1, output_padding=1
    ))  # fmt: skip
    yield case("conv2d_transpose", [PICTURE], lambda x: op.nn.conv2d_transpose(
        x, weights(4, 3, 2, 2), strides=2, groups=2
    ), "groups")  # fmt: skip
    yield case("conv3d_transpose", [(1, 2, 4, 4, 4)], lambda x: op.nn.conv3d_transpose(
        x, weights(2, 3, 3, 3, 3), strides=2, padding=1
    ))  # fmt: skip


def _products() -> Iterator[CudaCase]:
    for dtype in ("float32", "float16", "bfloat16"):
        columns = weights(13, 7, dtype=dtype)
        yield case("matmul", [((2, 3, 13), dtype)], lambda x, c=columns: op.matmul(x, c))
    yield case("matmul", [(2, 3, 4, 5), (3, 5, 2)], op.matmul, "batched")
    yield case("matmul", [(2, 3, 5), (5,)], op.matmul, "vector")
    yield case("matmul", [(3, 4, 5), (3, 7, 5)], lambda a, b: op.matmul(
        a, op.permute_dims(b, [0, 2, 1])
    ), "transposed")  # fmt: skip
    for dtype in ("float32", "float16", "bfloat16"):
        heads = [((2, 6, 4, 8), dtype), ((2, 7, 4, 8), dtype), ((2, 7, 4, 8), dtype)]
        yield case("attention", heads, lambda q, k, v: op.nn.attention(q, k, v, scale=0.3))
    single = [(2, 6, 4, 8), (2, 7, 4, 8), (2, 7, 4, 8)]
    for mask in ("TopLeft", "BottomRight"):
        yield case("attention", single, lambda q, k, v, m=mask: op.nn.attention(
            q, k, v, causal_mask=m
        ), mask)  # fmt: skip
    yield case("attention_bias", [*single, (2, 4, 6, 7)], op.nn.attention_bias)
    yield case("attention_bias", [*single, (2, 4, 6, 7)], lambda q, k, v, b: op.nn.attention_bias(
        q, k, v, b, causal_mask="TopLeft"
    ), "causal")  # fmt: skip
    wide = [((1, 32, 12, 64), "float16")] * 3
    yield case("attention", wide, op.nn.attention, "wide")


def _regions() -> Iterator[CudaCase]:
    """Whole blocks, in each precision that the options offer."""
    kernels = [weights(8, 3, 3, 4, seed=1), weights(8, 3, 3, 8, seed=2)]
    last = {"data_layout": "NHWC", "kernel_layout": "OHWI"}

    def block(x: relax.Expr) -> relax.Expr:
        first = op.nn.conv2d(x, kernels[0], padding=1, **last)
        first = op.nn.relu(op.add(first, weights(1, 1, 1, 8)))
        second = op.add(op.nn.conv2d(first, kernels[1], padding=1, **last), first)
        pooled = op.mean(op.nn.relu(second), [1, 2])
        return op.nn.softmax(op.matmul(pooled, weights(8, 5)))

    yield case("conv2d", [LAST], block, "block")
    yield case("conv2d", [LAST], block, "block-fp16", options={"use_fp16": True}, rtol=5e-3)
    yield case("conv2d", [LAST], block, "block-bf16", options={"use_bf16": True}, rtol=5e-3)
    yield case("conv2d", [LAST], block, "block-tf32", options={"use_tf32": True}, rtol=5e-3)


def _quantized() -> Iterator[CudaCase]:
    # Powers of two: half precision holds them, so that no value moves to the next integer.
    scale = relax.const(np.float32(2.0**-6))
    zero = relax.const(np.int8(0))
    int8 = {"use_int8": True}

    def through(x: relax.Expr) -> relax.Expr:
        return op.dequantize(op.quantize(x, scale, zero, out_dtype="int8"), scale, zero, -1)

    columns = np.random.default_rng(5).integers(-127, 128, (16, 8), np.int8)
    scales = relax.const(np.exp2(-np.arange(6.0, 14.0)).astype(np.float32))

    def product(x: relax.Expr) -> relax.Expr:
        zeros = relax.const(np.zeros(8, np.int8))
        return op.matmul(through(x), op.dequantize(relax.const(columns), scales, zeros, 1))

    kernel = np.random.default_rng(6).integers(-127, 128, (8, 4, 3, 3), np.int8)

    def picture(x: relax.Expr) -> relax.Expr:
        zeros = relax.const(np.zeros(8, np.int8))
        return op.nn.conv2d(through(x), op.dequantize(relax.const(kernel), scales, zeros, 0))

    both = {"use_int8": True, "use_fp16": True}
    yield case("conv2d", [PICTURE], picture, "int8", options=int8)
    yield case("conv2d", [PICTURE], picture, "int8-fp16", options=both, rtol=5e-3)
    yield case("quantize", [(4, 16)], through, options=int8)
    yield case("dequantize", [(4, 16)], product, "matmul", options=int8)
