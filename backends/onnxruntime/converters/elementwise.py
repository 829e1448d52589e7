"""Converters of operators that work element by element."""

from __future__ import annotations

from tvm import relax

from collage.backends.onnxruntime.model import CONTRIB, OrtTensor
from collage.backends.onnxruntime.problem import RegionWriter, converts
from collage.backends.relax.calls.arguments import extents, number, operator_name

UNARY = {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "negative": "Neg",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "floor": "Floor",
    "round": "Round",
    "erf": "Erf",
    "sign": "Sign",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "nn.relu": "Relu",
    "logical_not": "Not",
}
"""Relax operators and ONNX's, of one operand and its dtype."""

CLASSIFYING = {"isnan": "IsNaN", "isinf": "IsInf"}
"""Those that give truth values."""

BINARY = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
}
"""Relax operators and ONNX's, of two operands that broadcast as numpy's do."""

COMPARING = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
}

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805
"""Klambauer et al., Self-Normalizing Neural Networks (2017); Relax has them fixed."""


@converts(*UNARY)
def _unary(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node(UNARY[operator_name(call)], w.tensor(call.args[0]))


@converts(*CLASSIFYING)
def _classifying(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node(CLASSIFYING[operator_name(call)], w.tensor(call.args[0]), dtype="bool")


@converts("isfinite")
def _isfinite(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    odd = (w.node(kind, x, dtype="bool") for kind in CLASSIFYING.values())
    return w.node("Not", w.node("Or", *odd))


@converts(*BINARY)
def _binary(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node(BINARY[operator_name(call)], *(w.tensor(arg) for arg in call.args))


@converts(*COMPARING)
def _comparing(w: RegionWriter, call: relax.Call) -> OrtTensor:
    operands = (w.tensor(arg) for arg in call.args)
    return w.node(COMPARING[operator_name(call)], *operands, dtype="bool")


@converts("not_equal")
def _not_equal(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Not", w.node("Equal", *(w.tensor(arg) for arg in call.args), dtype="bool"))


@converts("mod")
def _mod(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Mod", *(w.tensor(arg) for arg in call.args), fmod=1)


@converts("floor_mod")
def _floor_mod(w: RegionWriter, call: relax.Call) -> OrtTensor:
    # Of integers alone.
    return w.node("Mod", *(w.tensor(arg) for arg in call.args), fmod=0)


@converts("trunc")
def _trunc(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    return w.node("Mul", w.node("Sign", x), w.node("Floor", w.node("Abs", x)))


@converts("rsqrt")
def _rsqrt(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Div", w.number(1.0), w.node("Sqrt", w.tensor(call.args[0])))


@converts("square")
def _square(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    return w.node("Mul", x, x)


@converts("nn.gelu")
def _gelu(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Gelu", w.tensor(call.args[0]), domain=CONTRIB)


@converts("nn.gelu_tanh")
def _gelu_tanh(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("FastGelu", w.tensor(call.args[0]), domain=CONTRIB)


@converts("nn.silu")
def _silu(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("QuickGelu", w.tensor(call.args[0]), domain=CONTRIB, alpha=1.0)


@converts("nn.leakyrelu")
def _leakyrelu(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("LeakyRelu", w.tensor(call.args[0]), alpha=float(call.attrs.alpha))


@converts("nn.prelu")
def _prelu(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, slopes = w.tensor(call.args[0]), w.tensor(call.args[1])
    channel = int(call.attrs.axis) % len(w.shape(x))
    # A single slope is for all channels.
    kept = [channel] if w.shape(slopes)[0] > 1 else []
    return w.node("PRelu", x, w.reshape(slopes, extents(w.shape(x), kept)))


@converts("nn.selu")
def _selu(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.node("Selu", w.tensor(call.args[0]), alpha=_SELU_ALPHA, gamma=_SELU_SCALE)


@converts("nn.softplus")
def _softplus(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x, beta = w.tensor(call.args[0]), float(call.attrs.beta)
    if beta == 1:
        return w.node("Softplus", x)
    soft = w.node("Softplus", w.node("Mul", x, w.number(beta)))
    return w.node("Mul", soft, w.number(1.0 / beta))


@converts("clip")
def _clip(w: RegionWriter, call: relax.Call) -> OrtTensor:
    x = w.tensor(call.args[0])
    low, high = (w.number(number(bound), x.dtype) for bound in call.args[1:3])
    return w.node("Clip", x, low, high)


@converts("where")
def _where(w: RegionWriter, call: relax.Call) -> OrtTensor:
    condition, yes, no = (w.tensor(arg) for arg in call.args)
    return w.node("Where", condition, yes, no, dtype=yes.dtype)


@converts("astype")
def _astype(w: RegionWriter, call: relax.Call) -> OrtTensor:
    return w.cast(w.tensor(call.args[0]), str(call.attrs.dtype))
