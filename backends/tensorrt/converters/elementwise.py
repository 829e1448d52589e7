"""Converters of operators that work element by element."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.calls.arguments import number, operator_name
from collage.backends.relax.static_shape import static_shape
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.problem import NetworkWriter, converts

UNARY = {
    "exp": "EXP",
    "log": "LOG",
    "sqrt": "SQRT",
    "abs": "ABS",
    "negative": "NEG",
    "sin": "SIN",
    "cos": "COS",
    "tan": "TAN",
    "sinh": "SINH",
    "cosh": "COSH",
    "asin": "ASIN",
    "acos": "ACOS",
    "atan": "ATAN",
    "asinh": "ASINH",
    "acosh": "ACOSH",
    "atanh": "ATANH",
    "ceil": "CEIL",
    "floor": "FLOOR",
    "round": "ROUND",
    "erf": "ERF",
    "sign": "SIGN",
    "logical_not": "NOT",
}
"""Relax operators and ``nvinfer1::UnaryOperation``."""

_WIDE_RANGE = frozenset({"exp", "log", "sinh", "cosh"})
"""Computed in float32 where the region is in half precision."""

ACTIVATIONS = {
    "nn.relu": "RELU",
    "sigmoid": "SIGMOID",
    "tanh": "TANH",
    "nn.gelu": "GELU_ERF",
    "nn.gelu_tanh": "GELU_TANH",
}
"""Relax operators and ``nvinfer1::ActivationType``."""

BINARY = {
    "add": "SUM",
    "subtract": "SUB",
    "multiply": "PROD",
    "divide": "DIV",
    "power": "POW",
    "maximum": "MAX",
    "minimum": "MIN",
    "floor_divide": "FLOOR_DIV",
    "equal": "EQUAL",
    "greater": "GREATER",
    "less": "LESS",
    "logical_and": "AND",
    "logical_or": "OR",
    "logical_xor": "XOR",
}
"""Relax operators and ``nvinfer1::ElementWiseOperation``."""

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805
"""Klambauer et al., Self-Normalizing Neural Networks (2017); Relax has them fixed."""


@converts(*UNARY)
def _unary(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    name = operator_name(call)
    if name not in _WIDE_RANGE:
        return w.unary(UNARY[name], x)
    return w.cast_to(w.unary(UNARY[name], w.in_float32(x)), x.dtype)


@converts("rsqrt")
def _rsqrt(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return w.unary("RECIP", w.unary("SQRT", w.tensor(call.args[0])))


@converts("square")
def _square(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    return w.binary("PROD", x, x)


@converts(*BINARY)
def _binary(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    a, b = (w.tensor(arg) for arg in call.args)
    name = operator_name(call)
    if name != "power":
        return w.binary(BINARY[name], a, b)
    return w.cast_to(w.binary("POW", w.in_float32(a), w.in_float32(b)), a.dtype)


@converts("not_equal")
def _not_equal(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    a, b = (w.tensor(arg) for arg in call.args)
    return w.unary("NOT", w.binary("EQUAL", a, b))


@converts("less_equal", "greater_equal")
def _or_equal(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    # Not "not greater": a comparison with NaN is false.
    a, b = (w.tensor(arg) for arg in call.args)
    strict = "LESS" if operator_name(call) == "less_equal" else "GREATER"
    return w.binary("OR", w.binary(strict, a, b), w.binary("EQUAL", a, b))


@converts("where")
def _where(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    rank = len(static_shape(call))
    chosen, a, b = (w.with_rank(w.tensor(arg), rank) for arg in call.args)
    return w.output(w.network.add_select(chosen, a, b), "where")


@converts("astype")
def _astype(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return w.cast(w.tensor(call.args[0]), str(call.attrs.dtype))


@converts(*ACTIVATIONS)
def _activation(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return w.activation(ACTIVATIONS[operator_name(call)], w.tensor(call.args[0]))


@converts("nn.silu")
def _silu(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    return w.binary("PROD", x, w.activation("SIGMOID", x))


@converts("nn.leakyrelu")
def _leakyrelu(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return w.activation("LEAKY_RELU", w.tensor(call.args[0]), alpha=float(call.attrs.alpha))


@converts("nn.selu")
def _selu(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    return w.activation("SELU", w.tensor(call.args[0]), alpha=_SELU_ALPHA, beta=_SELU_SCALE)


@converts("nn.softplus")
def _softplus(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    # As max(x, 0) + log(1 + exp(-|beta x|)) / beta, which cannot overflow: TensorRT's activation
    # is log(exp(beta x) + 1).
    x = w.tensor(call.args[0])
    beta = float(call.attrs.beta)
    wide = w.in_float32(x)
    power = w.unary("EXP", w.binary("PROD", w.unary("ABS", wide), w.filled(-beta, wide)))
    soft = w.unary("LOG", w.binary("SUM", power, w.filled(1.0, wide)))
    soft = w.binary("PROD", soft, w.filled(1.0 / beta, wide))
    return w.cast_to(w.binary("SUM", w.activation("RELU", wide), soft), x.dtype)


@converts("nn.prelu")
def _prelu(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x, slopes = w.tensor(call.args[0]), w.tensor(call.args[1])
    shape = [1] * len(x.shape)
    shape[int(call.attrs.axis) % len(shape)] = slopes.shape[0]
    return w.output(w.network.add_parametric_relu(x, w.reshape(slopes, shape)), "prelu")


@converts("clip")
def _clip(w: NetworkWriter, call: relax.Call) -> TrtTensor:
    x = w.tensor(call.args[0])
    low, high = number(call.args[1]), number(call.args[2])
    if x.dtype not in (w.trt.DataType.INT32, w.trt.DataType.INT64):
        largest = 65504.0 if x.dtype == w.trt.DataType.HALF else 3.4028234663852886e38
        low, high = max(low, -largest), min(high, largest)
        return w.activation("CLIP", x, alpha=low, beta=high)
    bits = 31 if x.dtype == w.trt.DataType.INT32 else 53
    low, high = max(low, -(2.0**bits)), min(high, 2.0**bits - 1)
    above = w.binary("MAX", x, w.filled(math.ceil(low), x))
    return w.binary("MIN", above, w.filled(math.floor(high), x))
