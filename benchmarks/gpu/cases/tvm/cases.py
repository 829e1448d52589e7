"""TVM's own kernels on a GPU: every family of schedules, dtypes, sizes even and odd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases._case import CudaCase
from benchmarks.gpu.cases.tvm import _reductions

RTOL = {"float16": 5e-3, "float32": 2e-4, "bfloat16": 3e-2}
"""Half precision rounds what it stores; float32 only adds up in another order."""

Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[["_Graph", Sequence[relax.Var]], relax.Expr]
Input = tuple[tuple[int, ...], str]
op = relax.op


class _Graph:
    """The function under construction, and its seeded weights."""

    def __init__(self, builder: relax.BlockBuilder, dtype: str, seed: int) -> None:
        self.builder = builder
        self.dtype = dtype
        self.random = np.random.default_rng(seed)

    def emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder.emit(expr)

    def weights(self, *shape: int, gain: float = 1.0, mean: float = 0.0) -> relax.Expr:
        """Normally distributed, scaled by the number of terms that are summed over."""
        terms = shape[0] if len(shape) == 2 else int(np.prod(shape[1:])) or 1
        scale = gain / np.sqrt(max(terms, 1))
        array = self.random.standard_normal(shape, np.float32) * scale + mean
        return relax.const(array.astype(self.dtype), self.dtype)

    def dense(self, x: relax.Expr, depth: int, width: int) -> relax.Var:
        product = self.emit(op.matmul(x, self.weights(depth, width)))
        return self.emit(op.add(product, self.weights(width)))

    def conv(self, x: relax.Expr, width: int, depth: int, kernel: int, **attrs: Any) -> relax.Var:
        groups = attrs.get("groups", 1)
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        weights = self.weights(width, kernel, kernel, depth // groups)
        result = self.emit(op.nn.conv2d(x, weights, **layouts, **attrs))
        return self.emit(op.add(result, self.weights(1, 1, 1, width)))


def _module(inputs: Sequence[Input], dtype: str, body: Body, seed: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, kind)) for i, (shape, kind) in enumerate(inputs)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(_Graph(builder, dtype, seed), params))
        builder.emit_func_output(result)
    return builder.get()


def _attention(causal: str | None) -> Body:
    return lambda g, x: g.emit(op.nn.attention(*x, causal_mask=causal))


def _residual_block(g: _Graph, x: Sequence[relax.Var]) -> relax.Expr:
    first = g.emit(op.nn.relu(g.conv(x[0], 64, 64, 1)))
    second = g.emit(op.nn.relu(g.conv(first, 64, 64, 3, padding=(1, 1, 1, 1))))
    third = g.conv(second, 64, 64, 1)
    return g.emit(op.nn.relu(g.emit(op.add(third, x[0]))))


def _encoder_layer(g: _Graph, x: Sequence[relax.Var]) -> relax.Expr:
    heads = relax.ShapeExpr((2, 32, 4, 16))
    parts = [g.emit(op.reshape(g.dense(x[0], 64, 64), heads)) for _ in range(3)]
    mixed = g.emit(op.reshape(g.emit(op.nn.attention(*parts)), relax.ShapeExpr((2, 32, 64))))
    total = g.emit(op.add(g.dense(mixed, 64, 64), x[0]))
    gamma, beta = g.weights(64, mean=1.0), g.weights(64)
    normal = g.emit(op.nn.layer_norm(total, gamma, beta, axes=[-1], epsilon=1e-5))
    wide = g.emit(op.nn.gelu(g.dense(normal, 64, 128)))
    return g.emit(op.add(g.dense(wide, 128, 64), normal))


def _lrn(g: _Graph, x: Sequence[relax.Var]) -> relax.Expr:
    square = g.emit(op.reshape(g.emit(op.multiply(x[0], x[0])), relax.ShapeExpr((1, 1, 784, 64))))
    mean = g.emit(op.nn.avg_pool2d(square, (1, 5), (1, 1), (0, 2, 0, 2), count_include_pad=True))
    back = g.emit(op.reshape(mean, relax.ShapeExpr((1, 28, 28, 64))))
    scaled = g.emit(op.multiply(back, relax.const(0.1, g.dtype)))
    shifted = g.emit(op.add(scaled, relax.const(1.0, g.dtype)))
    return g.emit(op.divide(x[0], g.emit(op.power(shifted, relax.const(0.75, g.dtype)))))


def _graphs(dtype: str) -> dict[str, tuple[Sequence[Input], Body]]:
    def tensor(*shape: int) -> Input:
        return shape, dtype

    def layer_norm(g: _Graph, x: Sequence[relax.Var]) -> relax.Expr:
        gamma, beta = g.weights(768, mean=1.0), g.weights(768)
        total = g.emit(op.add(x[0], x[1]))
        return g.emit(op.nn.layer_norm(total, gamma, beta, axes=[-1], epsilon=1e-5))

    gain = [
        ("dense", (2, 128, 256), 384),
        ("odd", (77, 100), 50),
        ("row", (1, 512), 384),
        ("few", (16, 512), 384),
        # Few tiles with long sums.
        ("long", (2, 40, 3072), 72),
        # Rows of weights that no wide load takes; their columns are aligned.
        ("wide", (16, 64), 1003),
        ("wide_row", (1, 64), 1003),
    ]

    def dense(depth: int, width: int) -> Body:
        return lambda g, x: g.emit(op.nn.gelu(g.dense(x[0], depth, width)))

    products: dict[str, tuple[Sequence[Input], Body]] = {
        f"dense_{name}": ([tensor(*shape)], dense(shape[-1], width)) for name, shape, width in gain
    }
    return {
        **products,
        **_reductions.graphs(dtype),
        "batched": (
            [tensor(12, 128, 64), tensor(12, 64, 128)],
            lambda g, x: g.emit(op.matmul(*x)),
        ),
        "attention": ([tensor(2, 33, 4, 16)] * 3, _attention(None)),
        "attention_causal": ([tensor(1, 64, 2, 32)] * 3, _attention("TopLeft")),
        "softmax": ([tensor(2, 33, 77)], lambda g, x: g.emit(op.nn.softmax(x[0], -1))),
        "layer_norm": ([tensor(2, 33, 768)] * 2, layer_norm),
        "rms_norm": (
            [tensor(2, 33, 768)],
            lambda g, x: g.emit(
                op.nn.rms_norm(x[0], g.weights(768, mean=1.0), axes=[-1], epsilon=1e-5)
            ),
        ),
        "conv_3x3": (
            [tensor(2, 14, 14, 64)],
            lambda g, x: g.emit(
                op.nn.relu(g.conv(x[0], 96, 64, 3, strides=(2, 2), padding=(1, 1, 1, 1)))
            ),
        ),
        "conv_stem": (
            [tensor(1, 61, 61, 3)],
            lambda g, x: g.conv(x[0], 24, 3, 7, strides=(2, 2), padding=(3, 3, 3, 3)),
        ),
        # Patches of an image: K is 768, a multiple of every stage, in rows of three channels.
        "conv_patches": (
            [tensor(1, 64, 64, 3)],
            lambda g, x: g.conv(x[0], 64, 3, 16, strides=(16, 16)),
        ),
        "conv_dilated": (
            [tensor(1, 19, 19, 20)],
            lambda g, x: g.conv(x[0], 36, 20, 3, dilation=(2, 2), padding=(2, 2, 2, 2)),
        ),
        "conv_depthwise": (
            [tensor(16, 28, 28, 96)],
            lambda g, x: g.emit(
                op.clip(g.conv(x[0], 96, 96, 3, padding=(1, 1, 1, 1), groups=96), 0, 6)
            ),
        ),
        "conv_depthwise_odd": (
            [tensor(1, 15, 15, 27)],
            lambda g, x: g.conv(x[0], 27, 27, 5, strides=(2, 2), padding=(2, 2, 2, 2), groups=27),
        ),
        "conv_grouped": (
            [tensor(1, 28, 28, 64)],
            lambda g, x: g.conv(x[0], 64, 64, 3, padding=(1, 1, 1, 1), groups=16),
        ),
        "conv_nchw": (
            [tensor(1, 32, 17, 17)],
            lambda g, x: g.emit(op.nn.conv2d(x[0], g.weights(48, 32, 3, 3), padding=(1, 1, 1, 1))),
        ),
        "max_pool": (
            [tensor(16, 29, 29, 64)],
            lambda g, x: g.emit(
                op.nn.max_pool2d(x[0], (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC")
            ),
        ),
        "avg_pool": (
            [tensor(2, 14, 14, 33)],
            lambda g, x: g.emit(
                op.nn.avg_pool2d(x[0], (3, 3), (1, 1), (1, 1, 1, 1), layout="NHWC")
            ),
        ),
        "adaptive_pool": (
            [tensor(2, 10, 13, 64)],
            lambda g, x: g.emit(op.nn.adaptive_avg_pool2d(x[0], (3, 4), layout="NHWC")),
        ),
        "global_pool": (
            [tensor(2, 7, 7, 512)],
            lambda g, x: g.emit(op.mean(x[0], [1, 2], keepdims=True)),
        ),
        "sum_all": ([tensor(16, 100)], lambda g, x: g.emit(op.mean(x[0]))),
        "lrn": ([tensor(1, 28, 28, 64)], _lrn),
        "elementwise": (
            [tensor(4, 28, 28, 64)] * 2,
            lambda g, x: g.emit(
                op.nn.silu(g.emit(op.multiply(g.emit(op.add(*x)), g.weights(64, mean=1.0))))
            ),
        ),
        "elementwise_odd": (
            [tensor(3, 7, 5), tensor(7, 1)],
            lambda g, x: g.emit(op.tanh(g.emit(op.subtract(*x)))),
        ),
        "transpose": (
            [tensor(2, 3, 37, 41)],
            lambda g, x: g.emit(op.permute_dims(x[0], [0, 2, 3, 1])),
        ),
        # Rows of several short lines, and tiles that reach beyond the end.
        "transpose_lines": (
            [tensor(2, 40, 9, 20), tensor(2, 9, 20, 40)],
            lambda g, x: g.emit(
                op.nn.relu(g.emit(op.add(g.emit(op.permute_dims(x[0], [0, 2, 3, 1])), x[1])))
            ),
        ),
        "transpose_ends": (
            [tensor(1, 33, 17, 5)],
            lambda g, x: g.emit(op.permute_dims(x[0], [0, 2, 3, 1])),
        ),
        "transpose_matrix": (
            [tensor(130, 192)],
            lambda g, x: g.emit(op.permute_dims(x[0], [1, 0])),
        ),
        "concat": (
            [tensor(1, 14, 14, 24), tensor(1, 14, 14, 40)],
            lambda g, x: g.emit(op.concat(list(x), 3)),
        ),
        "split": (
            [tensor(2, 32, 192)],
            lambda g, x: _joined(g, g.emit(op.split(x[0], 3, -1))),
        ),
        "take": (
            [((2, 33), "int64")],
            lambda g, x: g.emit(op.take(g.weights(100, 64), x[0], axis=0)),
        ),
        "residual_block": ([tensor(1, 14, 14, 64)], _residual_block),
        "encoder_layer": ([tensor(2, 32, 64)], _encoder_layer),
    }


def _joined(g: _Graph, parts: relax.Var) -> relax.Expr:
    first, second, third = (g.emit(relax.TupleGetItem(parts, i)) for i in range(3))
    return g.emit(op.multiply(g.emit(op.add(first, second)), third))


def cases() -> list[CudaCase]:
    """Every graph in each type."""
    found = []
    for dtype in ("float16", "float32", "bfloat16"):
        for seed, (name, (inputs, body)) in enumerate(_graphs(dtype).items()):
            if dtype == "bfloat16" and name.startswith("group_norm"):
                continue  # Relax says that bfloat16 is no float.
            module = _module(inputs, dtype, body, seed)
            found.append(CudaCase(f"{name}-{dtype}", "tvm", "tvm", module, rtol=RTOL[dtype]))
    return found
