"""Small models for tests on a GPU, each with the same computation in numpy and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

Array = NDArray[Any]


@dataclass(frozen=True)
class Model:
    """A module of one input and one output, and what it must compute.

    Attributes
    ----------
    module : tvm.IRModule
    reference : callable
        The output in float64.
    """

    module: tvm.IRModule
    reference: Callable[[Array], Array]

    def input(self, seed: int) -> Array:
        """A normally distributed input."""
        info = self.module["main"].params[0].ty
        shape = [int(extent) for extent in info.shape]
        random = np.random.default_rng(seed).standard_normal(shape)
        return np.asarray(random.astype(str(info.dtype)))

    def check(self, x: Array, actual: Array, tolerance: float) -> None:
        """Compare an output, to a share of the largest value."""
        expected = self.reference(x)
        assert actual.shape == expected.shape and np.isfinite(actual).all()
        worst = np.abs(actual.astype(np.float64) - expected).max() / np.abs(expected).max()
        assert worst < tolerance, f"off by {worst:.2e} of the largest value"


class Writer:
    """Random weights for a module, remembered for its reference."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._rng = np.random.default_rng(0)
        self.arrays: list[Array] = []

    def weights(self, *shape: int, scale: float | None = None, mean: float = 0.0) -> relax.Expr:
        """A constant; by default scaled so that a product with it keeps its input's scale."""
        rows = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
        factor = scale if scale is not None else rows**-0.5
        array = (mean + factor * self._rng.standard_normal(shape)).astype(self._dtype)
        self.arrays.append(array.astype(np.float64))
        return relax.const(array)

    def bias(self, *shape: int) -> relax.Expr:
        return self.weights(*shape, scale=0.1)

    def dense(self, x: relax.Expr, rows: int, columns: int) -> relax.Expr:
        return op.add(op.matmul(x, self.weights(rows, columns)), self.bias(columns))

    def conv(self, x: relax.Expr, out: int, inp: int, size: int, **attrs: int) -> relax.Expr:
        made = op.nn.conv2d(x, self.weights(out, inp, size, size), **attrs)
        return op.add(made, self.bias(1, out, 1, 1))

    def norm(self, x: relax.Expr, size: int) -> relax.Expr:
        gamma, beta = self.weights(size, scale=0.1, mean=1.0), self.bias(size)
        return op.nn.layer_norm(x, gamma, beta, axes=[-1])


def _module(
    shape: tuple[int, ...], dtype: str, body: Callable[[relax.Expr], relax.Expr]
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(x)))
        builder.emit_func_output(out)
    return builder.get()


def mixed(dtype: str = "float16") -> Model:
    """Something for every library: a convolution, a GELU between dense layers, a layer norm."""
    w = Writer(dtype)

    def body(x: relax.Expr) -> relax.Expr:
        y = op.mean(op.nn.relu(w.conv(x, 64, 32, 3, padding=1)), [2, 3])
        return w.dense(w.norm(op.nn.gelu_tanh(w.dense(y, 64, 256)), 256), 256, 64)

    def reference(x: Array) -> Array:
        kernel, bias, *rest = w.arrays
        y = np.maximum(conv2d(x, kernel, padding=1) + bias, 0).mean((2, 3))
        y = gelu_tanh(y @ rest[0] + rest[1])
        return np.asarray(layer_norm(y, rest[2], rest[3]) @ rest[4] + rest[5])

    return Model(_module((8, 32, 16, 16), dtype, body), reference)


def wide(dtype: str = "float16") -> Model:
    """Two dense layers with weights of half a megabyte each, which a bundle may have in files."""
    w = Writer(dtype)

    def body(x: relax.Expr) -> relax.Expr:
        return w.dense(op.nn.relu(w.dense(x, 256, 1024)), 1024, 256)

    def reference(x: Array) -> Array:
        first, bias, second, offset = w.arrays
        return np.asarray(np.maximum(x.astype(np.float64) @ first + bias, 0) @ second + offset)

    return Model(_module((16, 256), dtype, body), reference)


def convolutions(dtype: str = "float32") -> Model:
    """A stem with a pool, an inverted residual with a depthwise convolution, a classifier."""
    w = Writer(dtype)

    def body(x: relax.Expr) -> relax.Expr:
        stem = op.nn.relu(w.conv(x, 16, 3, 7, strides=2, padding=3))
        pooled = op.nn.max_pool2d(stem, pool_size=3, strides=2, padding=1)
        wide = op.clip(w.conv(pooled, 32, 16, 1), 0, 6)
        deep = op.clip(w.conv(wide, 32, 1, 3, padding=1, groups=32), 0, 6)
        joined = op.nn.relu(op.add(w.conv(deep, 16, 32, 1), pooled))
        return op.nn.softmax(w.dense(op.mean(joined, [2, 3]), 16, 10))

    def reference(x: Array) -> Array:
        k = w.arrays
        stem = np.maximum(conv2d(x, k[0], stride=2, padding=3) + k[1], 0)
        pooled = max_pool(stem, 3, stride=2, padding=1)
        wide = np.clip(conv2d(pooled, k[2]) + k[3], 0, 6)
        deep = np.clip(conv2d(wide, k[4], padding=1, groups=32) + k[5], 0, 6)
        joined = np.maximum(conv2d(deep, k[6]) + k[7] + pooled, 0)
        return softmax(joined.mean((2, 3)) @ k[8] + k[9])

    return Model(_module((2, 3, 32, 32), dtype, body), reference)


BATCH, LENGTH, HEADS, WIDTH = 2, 24, 4, 64


def transformer(dtype: str = "float32") -> Model:
    """One layer: attention of four heads, then two dense layers with an exact GELU."""
    w = Writer(dtype)
    depth = WIDTH // HEADS

    def heads(x: relax.Expr) -> relax.Expr:
        apart = op.reshape(w.dense(x, WIDTH, WIDTH), (BATCH, LENGTH, HEADS, depth))
        return op.permute_dims(apart, [0, 2, 1, 3])

    def body(x: relax.Expr) -> relax.Expr:
        q, k, v = heads(x), heads(x), heads(x)
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]))
        scores = op.multiply(scores, relax.const(depth**-0.5, dtype))
        mixed = op.permute_dims(op.matmul(op.nn.softmax(scores), v), [0, 2, 1, 3])
        out = w.dense(op.reshape(mixed, (BATCH, LENGTH, WIDTH)), WIDTH, WIDTH)
        y = w.norm(op.add(out, x), WIDTH)
        hidden = op.nn.gelu(w.dense(y, WIDTH, 4 * WIDTH))
        return w.norm(op.add(w.dense(hidden, 4 * WIDTH, WIDTH), y), WIDTH)

    def reference(x: Array) -> Array:
        k = w.arrays
        x = x.astype(np.float64)

        def apart(weights: Array, bias: Array) -> Array:
            return (x @ weights + bias).reshape(BATCH, LENGTH, HEADS, depth).transpose(0, 2, 1, 3)

        query, key, value = apart(k[0], k[1]), apart(k[2], k[3]), apart(k[4], k[5])
        attended = softmax(query @ key.transpose(0, 1, 3, 2) * depth**-0.5) @ value
        attended = attended.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH)
        y = layer_norm(attended @ k[6] + k[7] + x, k[8], k[9])
        return layer_norm(gelu(y @ k[10] + k[11]) @ k[12] + k[13] + y, k[14], k[15])

    return Model(_module((BATCH, LENGTH, WIDTH), dtype, body), reference)


def dense_relu() -> Model:
    """One kernel."""
    w = Writer("float32")

    def reference(x: Array) -> Array:
        return np.maximum(x.astype(np.float64) @ w.arrays[0] + w.arrays[1], 0)

    return Model(
        _module((128, 256), "float32", lambda x: op.nn.relu(w.dense(x, 256, 64))), reference
    )


def rectified() -> Model:
    """Two rectifiers, each between operators that only TVM runs."""
    w = Writer("float32")

    def body(x: relax.Expr) -> relax.Expr:
        y = op.nn.relu(op.cumsum(op.add(x, w.bias(1000)), axis=0))
        return op.cumsum(op.nn.relu(op.cumsum(op.multiply(y, w.bias(1000)), axis=0)), axis=0)

    def reference(x: Array) -> Array:
        y = np.maximum((x.astype(np.float64) + w.arrays[0]).cumsum(0), 0)
        return np.maximum((y * w.arrays[1]).cumsum(0), 0).cumsum(0)

    return Model(_module((4, 1000), "float32", body), reference)


# The operators, from their definitions.


def _windows(x: Array, size: int, stride: int) -> Array:
    """Views of shape (batch, channels, rows, columns, size, size)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return windows[:, :, ::stride, ::stride]


def conv2d(x: Array, kernel: Array, *, stride: int = 1, padding: int = 0, groups: int = 1) -> Array:
    """NCHW by OIHW."""
    edge = (padding, padding)
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), edge, edge))
    parts = zip(np.split(x, groups, 1), np.split(kernel, groups, 0), strict=True)
    return np.concatenate(
        [
            np.einsum("nchwij,ocij->nohw", _windows(part, kernel.shape[-1], stride), weights)
            for part, weights in parts
        ],
        axis=1,
    )


def max_pool(x: Array, size: int, *, stride: int, padding: int) -> Array:
    edge = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), edge, edge), constant_values=-np.inf)
    return np.asarray(_windows(padded, size, stride).max((-1, -2)))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(centred / deviation * gamma + beta)


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
