"""Element by element: arithmetic, comparisons, activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from collage.cost.reference.values import Array, Operator, OperatorTable, Value, widen

_BLOCK = 1 << 14
"""Elements of a block whose intermediate results stay in the cache."""


def erf(x: Array) -> Array:
    """The error function, with a fractional error of erfc below 1.2e-7.

    The Chebyshev fit of Press et al., Numerical Recipes in C (2nd edition), section 6.2 (erfcc),
    evaluated in float64: more than float32 can tell apart, and numpy has none.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty(flat.shape, dtype=np.float64)
    for begin in range(0, flat.size, _BLOCK):
        out[begin : begin + _BLOCK] = _erf_of_block(flat[begin : begin + _BLOCK])
    return out.reshape(np.shape(x))


def _erf_of_block(x: Array) -> Array:
    z = np.abs(x.astype(np.float64))
    t = 1.0 / (1.0 + 0.5 * z)
    coefficients = (
        0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
        -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
    )  # fmt: skip
    exponent = np.full_like(t, coefficients[0])
    for coefficient in coefficients[1:]:
        exponent *= t
        exponent += coefficient
    exponent -= z * z
    result: Array = np.sign(x) * (1.0 - t * np.exp(exponent))
    return result


def sigmoid(x: Array) -> Array:
    # Two forms, so that exp never overflows.
    e = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e)).astype(x.dtype)
    return result


def _gelu(x: Array) -> Any:
    return 0.5 * x * (1.0 + erf(x * np.float64(np.sqrt(0.5))))


def _gelu_tanh(x: Array) -> Any:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def _selu(x: Array) -> Any:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _quotient(a: Array, b: Array) -> Any:
    """Floats divide; integers truncate towards zero, as in C."""
    if np.result_type(a, b).kind in "iu":
        return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return a / b


def _unary(function: Any) -> Operator:
    def apply(_: relax.Call, args: list[Value]) -> Value:
        return function(widen(args[0]))

    return apply


def _binary(function: Any) -> Operator:
    def apply(_: relax.Call, args: list[Value]) -> Value:
        a, b = args
        # A bare number takes the array's dtype; Relax has no other promotion.
        if isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
            b = np.asarray(b, dtype=a.dtype)
        elif isinstance(b, np.ndarray) and not isinstance(a, np.ndarray):
            a = np.asarray(a, dtype=b.dtype)
        return function(widen(a), widen(b))

    return apply


def _clip(_: relax.Call, args: list[Value]) -> Value:
    x, low, high = args
    return np.minimum(np.maximum(widen(x), low), high)


def _leakyrelu(call: relax.Call, args: list[Value]) -> Value:
    x = widen(args[0])
    return np.where(x > 0, x, x * float(call.attrs.alpha))


def _prelu(call: relax.Call, args: list[Value]) -> Value:
    x, slope = widen(args[0]), widen(args[1])
    shape = [1] * x.ndim
    shape[int(call.attrs.axis) % x.ndim] = slope.size
    return np.where(x > 0, x, x * slope.reshape(shape))


def _softplus(call: relax.Call, args: list[Value]) -> Value:
    x, beta = widen(args[0]), float(call.attrs.beta)
    soft = np.log1p(np.exp(np.minimum(beta * x, float(call.attrs.threshold)))) / beta
    return np.where(beta * x > float(call.attrs.threshold), x, soft)


def _where(_: relax.Call, args: list[Value]) -> Value:
    return np.where(*args)


def _cast(_: relax.Call, args: list[Value]) -> Value:
    return args[0]  # The evaluator gives every result the dtype that its type promises.


def _per_channel(call: relax.Call, values: Value, x: Array) -> Any:
    """A scale or zero point of a single number, or one per index of the operator's axis."""
    wide = widen(np.asarray(values))
    if wide.size == 1:
        return wide.reshape(())
    shape = [1] * x.ndim
    shape[int(call.attrs.axis) % x.ndim] = wide.size
    return wide.reshape(shape)


def _quantize(call: relax.Call, args: list[Value]) -> Value:
    x = widen(args[0])
    limits = np.iinfo(str(call.attrs.out_dtype))
    steps = np.rint(x / _per_channel(call, args[1], x))
    return np.clip(steps + _per_channel(call, args[2], x), limits.min, limits.max)


def _dequantize(call: relax.Call, args: list[Value]) -> Value:
    x = widen(args[0])
    scale, zero = (_per_channel(call, values, x) for values in args[1:3])
    # As wide numbers: a byte less a larger one is below zero.
    return (x.astype(scale.dtype) - zero.astype(scale.dtype)) * scale


ELEMENTWISE: OperatorTable = {
    **{
        f"relax.{name}": _unary(function)
        for name, function in {
            "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
            "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil,
            "cos": np.cos, "cosh": np.cosh, "erf": erf, "exp": np.exp, "floor": np.floor,
            "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "log": np.log,
            "logical_not": np.logical_not, "bitwise_not": np.invert, "negative": np.negative,
            "round": np.rint, "rsqrt": lambda x: 1.0 / np.sqrt(x), "sigmoid": sigmoid,
            "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt,
            "square": np.square, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
            "nn.relu": lambda x: np.maximum(x, 0), "nn.relu6": lambda x: np.clip(x, 0, 6),
            "nn.gelu": _gelu, "nn.gelu_tanh": _gelu_tanh, "nn.selu": _selu,
            "nn.silu": lambda x: x * sigmoid(x),
        }.items()
    },
    **{
        f"relax.{name}": _binary(function)
        for name, function in {
            "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
            "divide": _quotient, "floor_divide": np.floor_divide, "power": np.power,
            "mod": np.fmod, "floor_mod": np.mod, "maximum": np.maximum, "minimum": np.minimum,
            "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
            "less_equal": np.less_equal, "greater": np.greater,
            "greater_equal": np.greater_equal, "logical_and": np.logical_and,
            "logical_or": np.logical_or, "logical_xor": np.logical_xor,
            "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
            "bitwise_xor": np.bitwise_xor, "left_shift": np.left_shift,
            "right_shift": np.right_shift, "atan2": np.arctan2,
            "log_add_exp": np.logaddexp,
        }.items()
    },
    "relax.clip": _clip,
    "relax.nn.leakyrelu": _leakyrelu,
    "relax.nn.prelu": _prelu,
    "relax.nn.softplus": _softplus,
    "relax.where": _where,
    "relax.astype": _cast,
    "relax.quantize": _quantize,
    "relax.dequantize": _dequantize,
    "relax.nn.dropout": lambda _, args: (args[0], np.ones_like(args[0])),
}  # fmt: skip
