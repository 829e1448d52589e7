"""Networks in half and single precision are as right as rounding lets them be, and are found so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.testing import graph

Emit = Callable[[relax.Expr], relax.Var]


class Net:
    """Layers with seeded random weights of one type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(17)

    def weight(self, *shape: int, fan: int) -> relax.Expr:
        values = self.rng.standard_normal(shape) * (2.0 / fan) ** 0.5
        return relax.const(values.astype(self.dtype))

    def bias(self, channels: int) -> relax.Expr:
        return relax.const((self.rng.standard_normal((1, channels, 1, 1)) * 0.1).astype(self.dtype))

    def conv(self, emit: Emit, x: relax.Expr, outer: int, k: int, **attrs: int) -> relax.Var:
        inner = int(x.ty.shape[1]) // attrs.get("groups", 1)
        w = self.weight(outer, inner, k, k, fan=inner * k * k)
        return emit(op.add(emit(op.nn.conv2d(x, w, padding=k // 2, **attrs)), self.bias(outer)))

    def efficientnet(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        """Depthwise convolutions, swish and squeeze-excitation; noise is no photograph."""
        x = emit(op.nn.silu(self.conv(emit, x, 16, 3, strides=2)))
        for outer, stride in ((24, 2), (24, 1), (40, 2), (40, 1)):
            inner = int(x.ty.shape[1])
            y = emit(op.nn.silu(self.conv(emit, x, inner * 4, 1)))
            y = emit(op.nn.silu(self.conv(emit, y, inner * 4, 3, groups=inner * 4, strides=stride)))
            s = emit(op.mean(y, axis=[2, 3], keepdims=True))
            s = emit(op.nn.silu(self.conv(emit, s, 8, 1)))
            y = emit(op.multiply(y, emit(op.sigmoid(self.conv(emit, s, inner * 4, 1)))))
            y = self.conv(emit, y, outer, 1)
            x = emit(op.add(x, y)) if stride == 1 else y
        x = emit(op.mean(x, axis=[2, 3]))
        return op.matmul(x, self.weight(40, 50, fan=40))

    def generator(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        """DCGAN's: transposed convolutions over many channels."""
        for inner, outer in ((128, 96), (96, 64), (64, 3)):
            w = self.weight(inner, outer, 4, 4, fan=inner * 4)
            x = emit(op.nn.conv2d_transpose(x, w, strides=2, padding=1))
            x = emit(op.nn.relu(x)) if outer > 3 else x
        return op.tanh(x)

    def residual(self, emit: Emit, x: relax.Expr) -> relax.Expr:
        x = emit(op.nn.relu(self.conv(emit, x, 32, 3)))
        for _ in range(4):
            y = emit(op.nn.relu(self.conv(emit, x, 32, 3)))
            x = emit(op.nn.relu(emit(op.add(x, self.conv(emit, y, 32, 3)))))
        return op.mean(x, axis=[2, 3])


SHAPES = {"efficientnet": (1, 3, 48, 48), "generator": (1, 128, 4, 4), "residual": (1, 3, 20, 20)}


def network(name: str, dtype: str) -> tvm.IRModule:
    return graph([SHAPES[name]], getattr(Net(dtype), name), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_network_is_right_and_not_far_from_rounding(name: str, dtype: str) -> None:
    result = collage.optimize(network(name, dtype), ["llvm"], strategy="single:tvm", num_threads=1)
    report = result.report
    assert report.outputs_max_rel_diff is not None and report.outputs_rounding_rel_diff is not None
    assert not any("hardly be told" in remark for remark in report.remarks)
    limit = {"float16": 2e-2, "float32": 1e-5}[dtype]
    assert report.outputs_rounding_rel_diff < limit and report.outputs_max_rel_diff < limit
    assert report.outputs_max_rel_diff <= 4 * report.outputs_rounding_rel_diff + limit / 10


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scaled_attention_in_half_precision_compiles_and_is_right(dtype: str) -> None:
    """With a scale, what it gave to the next operator was float32."""

    def body(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        return op.permute_dims(emit(op.nn.attention(q, k, v, scale=0.3)), [0, 2, 1, 3])

    mod = graph([(1, 12, 2, 16)] * 3, body, dtype=dtype)
    report = collage.optimize(mod, ["llvm"], strategy="single:tvm", num_threads=1).report
    limit = {"float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    assert report.outputs_max_rel_diff is not None and report.outputs_max_rel_diff < limit
