"""Converters of matrix products, attention and quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from collage.backends.relax.calls.arguments import attention_scale
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.problem import NetworkWriter, converts

_MASKED = -3e4
"""Far below any score, and finite in half precision: what a masked position adds."""


def product(w: NetworkWriter, a: TrtTensor, b: TrtTensor, *, transposed: bool = False) -> TrtTensor:
    """A batched matrix product of tensors of two dimensions or more; ``transposed`` is ``b``.

    Parameters
    ----------
    w : NetworkWriter
        Of the network.
    a : TrtTensor
        ``(..., M, K)``.
    b : TrtTensor
        ``(..., K, N)``.
    transposed : bool
        Whether ``b`` is ``(..., N, K)``.

    Returns
    -------
    TrtTensor
        ``(..., M, N)`` in the operands' dtype, whose leading axes are broadcast.

    Raises
    ------
    RefusalError
        When TensorRT makes no layer; has TensorRT's reason.
    """
    rank = max(len(a.shape), len(b.shape))
    plain, turned = w.trt.MatrixOperation.NONE, w.trt.MatrixOperation.TRANSPOSE
    layer = w.network.add_matrix_multiply(
        w.with_rank(a, rank), plain, w.with_rank(b, rank), turned if transposed else plain
    )
    return w.output(layer, "matmul")


@converts("matmul")
def _matmul(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    a, b = w.tensor(call.args[0]), w.tensor(call.args[1])
    if len(a.shape) == 1:
        a = w.reshape(a, (1, a.shape[0]))
    if len(b.shape) == 1:
        b = w.reshape(b, (b.shape[0], 1))
    # Where an operand was a vector, the result lacks an axis of extent 1.
    return w.reshape(product(w, a, b), static_shape(call))


_Operands: TypeAlias = tuple[TrtTensor, TrtTensor, TrtTensor]
"""Query, key and value."""


@converts("nn.attention", "nn.attention_bias")
def _attention(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    query, key, value = (w.permute(w.tensor(arg), (0, 2, 1, 3)) for arg in call.args[:3])
    factor = attention_scale(call)
    # TensorRT wants the scale on an operand, not on the scores: half precision holds the scores.
    query = w.binary("PROD", query, w.filled(factor, query))
    bias = w.tensor(call.args[3]) if len(call.args) > 3 else None
    causal = "" if call.attrs.causal_mask is None else str(call.attrs.causal_mask)
    if bias is not None and causal:
        hidden = w.constant(_hidden(query.shape[2], key.shape[2], causal), exact=True)
        bias, causal = w.binary("SUM", bias, w.cast_to(hidden, bias.dtype)), ""
    build = _fused if hasattr(w.network, "add_attention_v2") else _chain
    return w.permute(build(w, (query, key, value), bias, causal), (0, 2, 1, 3))


def _fused(w: NetworkWriter, qkv: _Operands, bias: TrtTensor | None, causal: str) -> TrtTensor:
    """One attention layer, which TensorRT may still take apart where it has no kernel for it."""
    kind = getattr(w.trt.CausalMaskKind, _CAUSAL[causal])
    softmax = w.trt.AttentionNormalizationOp.SOFTMAX
    made = w.network.add_attention_v2(*qkv, softmax, kind)
    mask = {} if bias is None else {"mask": bias}
    return w.output(made, "attention", decomposable=True, **mask)


def _chain(w: NetworkWriter, qkv: _Operands, bias: TrtTensor | None, causal: str) -> TrtTensor:
    """Products and softmax, for versions that lack the layer."""
    query, key, value = qkv
    scores = product(w, query, key, transposed=True)
    if causal:
        hidden = w.constant(_hidden(query.shape[2], key.shape[2], causal), exact=True)
        bias = w.cast_to(hidden, scores.dtype)
    if bias is not None:
        scores = w.binary("SUM", scores, bias)
    return product(w, w.softmax(scores, 3), value)


_CAUSAL = {"": "NONE", "TopLeft": "UPPER_LEFT", "BottomRight": "LOWER_RIGHT"}
"""Relax's causal masks and ``nvinfer1::CausalMaskKind``."""


def _hidden(rows: int, columns: int, causal: str) -> np.ndarray:
    """What a causal mask adds to the scores."""
    last = columns - rows if causal == "BottomRight" else 0
    allowed = np.tri(rows, columns, last, dtype=bool)[np.newaxis, np.newaxis]
    return np.where(allowed, 0.0, _MASKED).astype(np.float32)


@converts("quantize")
def _quantize(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return _scaled(w, call, w.network.add_quantize, w.trt.DataType.INT8)


@converts("dequantize")
def _dequantize(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return _scaled(w, call, w.network.add_dequantize, w.dtype(str(call.ty.dtype)))


def _scaled(w: NetworkWriter, call: relax.Call, add: Callable[..., Any], dtype: Any) -> TrtTensor:
    """A layer that quantizes or dequantizes with one scale, or one per channel."""
    x, scale = w.tensor(call.args[0]), w.array(call.args[1])
    assert scale is not None
    name = str(call.op.name).removeprefix("relax.")
    if scale.size == 1:
        return w.output(add(x, w.constant(scale.reshape(())), dtype), name)
    axis = int(call.attrs.axis) % len(x.shape)
    return w.output(add(x, w.constant(scale), dtype), name, axis=axis)
