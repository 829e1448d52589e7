"""Converters of matrix products, attention and quantization."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from collage.backends.tensorrt.network import (
    NetworkWriter,
    TrtTensor,
    converts,
    static_shape,
)

_MASKED = -1e9
"""Far below any score, and finite in float32: what a masked position adds."""


def product(w: NetworkWriter, a: TrtTensor, b: TrtTensor, *, transposed: bool = False) -> TrtTensor:
    """A batched matrix product of tensors of two dimensions or more; ``transposed`` is ``b``."""
    rank = max(len(a.shape), len(b.shape))
    plain, turned = w.trt.MatrixOperation.NONE, w.trt.MatrixOperation.TRANSPOSE
    layer = w.network.add_matrix_multiply(
        w.with_rank(a, rank), plain, w.with_rank(b, rank), turned if transposed else plain
    )
    return w.output(layer, "matmul")


@converts("matmul")
def matmul(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    a, b = w.tensor(call.args[0]), w.tensor(call.args[1])
    if len(a.shape) == 1:
        a = w.reshape(a, (1, a.shape[0]))
    if len(b.shape) == 1:
        b = w.reshape(b, (b.shape[0], 1))
    # Where an operand was a vector, the result lacks an axis of extent 1.
    return w.reshape(product(w, a, b), static_shape(call))


@converts("nn.attention", "nn.attention_bias")
def attention(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    query, key, value = (w.permute(w.tensor(arg), (0, 2, 1, 3)) for arg in call.args[:3])
    scale = call.attrs.scale
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scaled = w.binary("PROD", query, w.filled(factor, query))
    scores = w.cast_to(product(w, scaled, key, transposed=True), w.trt.DataType.FLOAT)
    if len(call.args) > 3:
        bias = w.cast_to(w.tensor(call.args[3]), w.trt.DataType.FLOAT)
        scores = w.binary("SUM", scores, bias)
    if call.attrs.causal_mask is not None:
        rows, columns = scores.shape[-2:]
        last = columns - rows if str(call.attrs.causal_mask) == "BottomRight" else 0
        allowed = np.tri(rows, columns, last, dtype=bool)[np.newaxis, np.newaxis]
        hidden = np.where(allowed, 0.0, _MASKED).astype(np.float32)
        scores = w.binary("SUM", scores, w.constant(hidden, exact=True))
    layer = w.network.add_softmax(scores)
    w.output(layer, "softmax")
    layer.axes = 1 << 3
    weights = w.cast_to(layer.get_output(0), value.dtype)
    return w.permute(product(w, weights, value), (0, 2, 1, 3))


@converts("quantize")
def quantize(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, scale = w.tensor(call.args[0]), w.array(call.args[1])
    assert scale is not None
    layer = w.network.add_quantize(x, _scale(w, scale), w.trt.DataType.INT8)
    w.output(layer, "quantize")
    if scale.size > 1:
        layer.axis = int(call.attrs.axis) % len(x.shape)
    return layer.get_output(0)


@converts("dequantize")
def dequantize(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, scale = w.tensor(call.args[0]), w.array(call.args[1])
    assert scale is not None
    layer = w.network.add_dequantize(x, _scale(w, scale), w.dtype(str(call.ty.dtype)))
    w.output(layer, "dequantize")
    if scale.size > 1:
        layer.axis = int(call.attrs.axis) % len(x.shape)
    return layer.get_output(0)


def _scale(w: NetworkWriter, scale: np.ndarray) -> TrtTensor:
    return w.constant(scale.reshape(()) if scale.size == 1 else scale)
