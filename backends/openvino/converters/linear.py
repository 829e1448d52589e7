"""Converters of matrix products and attention."""

from __future__ import annotations

from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import attention_scale, causal_bias
from collage.backends.relax.static_shape import static_shape, tensor_dtype


@converts("matmul")
def _matmul(w: RegionWriter, call: relax.Call) -> OvTensor:
    a, b = (w.tensor(arg) for arg in call.args)
    return w.reshape(w.op.matmul(a, b, False, False).output(0), static_shape(call))


@converts("nn.attention", "nn.attention_bias")
def _attention(w: RegionWriter, call: relax.Call) -> OvTensor:
    query, key, value = (w.permute(w.tensor(arg), (0, 2, 1, 3)) for arg in call.args[:3])
    query = w.op.multiply(query, w.number(attention_scale(call), query))
    # OpenVINO fuses the chain by itself where it has a kernel for it.
    scores = w.op.matmul(query, key, False, True).output(0)
    if len(call.args) > 3:
        scores = w.op.add(scores, w.tensor(call.args[3])).output(0)
    hidden = causal_bias(call)
    if hidden is not None:
        scores = w.op.add(scores, w.cast(w.constant(hidden), tensor_dtype(call))).output(0)
    chances = w.op.softmax(scores, 3)
    return w.permute(w.op.matmul(chances, value, False, False).output(0), (0, 2, 1, 3))
