"""Converters of matrix products and attention."""

from __future__ import annotations

from tvm import relax

from collage.backends.onnxruntime.model import OrtTensor
from collage.backends.onnxruntime.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import attention_scale, causal_bias


@converts("matmul")
def _matmul(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("MatMul", *(w.tensor(arg) for arg in call.args))


@converts("nn.attention", "nn.attention_bias")
def _attention(w: RegionWriter, call: relax.Call) -> OrtTensor:
    query, key, value = (w.tensor(arg) for arg in call.args[:3])
    query, value = (w.permute(x, (0, 2, 1, 3)) for x in (query, value))
    query = w.node("Mul", query, w.number(attention_scale(call)))
    scores = w.node("MatMul", query, w.permute(key, (0, 2, 3, 1)))
    if len(call.args) > 3:
        scores = w.node("Add", scores, w.tensor(call.args[3]))
    hidden = causal_bias(call)
    if hidden is not None:
        scores = w.node("Add", scores, w.constant(hidden))
    mixed = w.node("MatMul", w.node("Softmax", scores, axis=3), value)
    return w.permute(mixed, (0, 2, 1, 3))
