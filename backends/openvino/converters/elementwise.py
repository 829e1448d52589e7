"""Converters of operators that work element by element."""

from __future__ import annotations

from tvm import relax

from collage.backends.openvino.model import OvTensor
from collage.backends.openvino.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import extents, number, operator_name

UNARY = {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "abs": "abs",
    "negative": "negative",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "ceil": "ceiling",
    "floor": "floor",
    "erf": "erf",
    "sign": "sign",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "nn.relu": "relu",
    "isnan": "is_nan",
    "isinf": "is_inf",
    "isfinite": "is_finite",
    "logical_not": "logical_not",
}
"""Relax operators and OpenVINO's, of one operand."""

BINARY = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "power": "power",
    "maximum": "maximum",
    "minimum": "minimum",
    "mod": "mod",
    "floor_mod": "floor_mod",
    "equal": "equal",
    "not_equal": "not_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "less": "less",
    "less_equal": "less_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
}
"""Relax operators and OpenVINO's, of two operands that broadcast as numpy's do."""

_GELU = {"nn.gelu": "erf", "nn.gelu_tanh": "tanh"}
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805
"""Klambauer et al., Self-Normalizing Neural Networks (2017); Relax has them fixed."""


@converts(*UNARY)
def _unary(w: RegionWriter, call: relax.Call) -> OvTensor:
    return getattr(w.op, UNARY[operator_name(call)])(w.tensor(call.args[0])).output(0)


@converts(*BINARY)
def _binary(w: RegionWriter, call: relax.Call) -> OvTensor:
    a, b = (w.tensor(arg) for arg in call.args)
    return getattr(w.op, BINARY[operator_name(call)])(a, b).output(0)


@converts("round")
def _round(w: RegionWriter, call: relax.Call) -> OvTensor:
    return w.op.round(w.tensor(call.args[0]), "half_to_even").output(0)


@converts("trunc")
def _trunc(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.multiply(w.op.sign(x), w.op.floor(w.op.abs(x))).output(0)


@converts("rsqrt")
def _rsqrt(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.divide(w.number(1.0, x), w.op.sqrt(x)).output(0)


@converts("square")
def _square(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.multiply(x, x).output(0)


@converts(*_GELU)
def _gelu(w: RegionWriter, call: relax.Call) -> OvTensor:
    return w.op.gelu(w.tensor(call.args[0]), _GELU[operator_name(call)]).output(0)


@converts("nn.silu")
def _silu(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    # Given no beta, OpenVINO takes one of float32, whatever the tensor is.
    return w.op.swish(x, w.number(1.0, x)).output(0)


@converts("nn.leakyrelu")
def _leakyrelu(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.prelu(x, w.number(float(call.attrs.alpha), x)).output(0)


@converts("nn.prelu")
def _prelu(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, slopes = w.tensor(call.args[0]), w.tensor(call.args[1])
    channel = int(call.attrs.axis) % len(w.shape(x))
    # A single slope is for all channels.
    kept = [channel] if w.shape(slopes)[0] > 1 else []
    return w.op.prelu(x, w.reshape(slopes, extents(w.shape(x), kept))).output(0)


@converts("nn.selu")
def _selu(w: RegionWriter, call: relax.Call) -> OvTensor:
    x = w.tensor(call.args[0])
    return w.op.selu(x, w.number(_SELU_ALPHA, x), w.number(_SELU_SCALE, x)).output(0)


@converts("nn.softplus")
def _softplus(w: RegionWriter, call: relax.Call) -> OvTensor:
    # By name: a product with its tanh is Mish then, which OpenVINO computes behind convolutions.
    x = w.tensor(call.args[0])
    beta = float(call.attrs.beta)
    if beta == 1.0:
        return w.op.softplus(x).output(0)
    soft = w.op.softplus(w.op.multiply(x, w.number(beta, x)))
    return w.op.multiply(soft, w.number(1.0 / beta, x)).output(0)


@converts("clip")
def _clip(w: RegionWriter, call: relax.Call) -> OvTensor:
    low, high = number(call.args[1]), number(call.args[2])
    return w.op.clamp(w.tensor(call.args[0]), low, high).output(0)


@converts("where")
def _where(w: RegionWriter, call: relax.Call) -> OvTensor:
    return w.op.select(*(w.tensor(arg) for arg in call.args)).output(0)


@converts("astype")
def _astype(w: RegionWriter, call: relax.Call) -> OvTensor:
    x, dtype = w.tensor(call.args[0]), str(call.attrs.dtype)
    if dtype == "bool" and x.get_element_type() != w.dtype("bool"):
        # A conversion keeps the lowest byte alone.
        return w.op.not_equal(x, w.number(0, x)).output(0)
    return w.cast(x, dtype)
