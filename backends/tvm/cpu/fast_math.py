"""Vectorizable ``exp``, ``log``, ``tanh``, ``erf``, ``sin``, ``cos``, rounding and powers.

LLVM turns a vector of any of them into one library call per lane. The polynomials below (Cephes'
``expf``, ``logf``, ``sinf`` and ``cosf``) stay within a few units in the last place of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

from collage.backends.tvm.cpu import double_math
from collage.backends.tvm.cpu.float32_math import (
    EXP2,
    clamp,
    constant,
    erf,
    erf_alone,
    polynomial,
    tanh,
    times_power,
    word,
)
from collage.backends.tvm.cpu.named_values import store_named
from collage.backends.tvm.cpu.remainder import remainder
from collage.backends.tvm.cpu.wide_math import FUNCTIONS, arctangent2, let, power

_FLOAT32 = "float32"
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_EXP_RANGE = (-87.3365, 88.72283)
_EXP2_RANGE = (-126.0, 127.99999)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_SMALLEST, _LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38
_SQRT_HALF_BITS = 0x3F3504F3
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_QUARTER = 0.7853981633974483
_MOST_FACTORS = 8
_WHOLE, _WHOLE_BITS = 8388608.0, 0x4B000000
"""2^23, and how it is stored: numbers from there on are whole."""


def use_fast_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace such functions of float32 numbers by polynomials."""

    def replace(call: Call) -> Any:
        if isinstance(call.op, Op) and str(call.op.name) == "tirx.pow":
            return _power(call)
        if isinstance(call.op, Op) and str(call.op.name) == "tirx.atan2":
            return arctangent2(*call.args) if str(call.ty) == _FLOAT32 else call
        if isinstance(call.op, Op) and str(call.op.name) == "tirx.fmod":
            return remainder(*call.args) if str(call.ty) == _FLOAT32 else call
        if not isinstance(call.op, Op) or len(call.args) != 1:
            return call
        if str(call.op.name) == "tirx.isnan" and str(call.args[0].ty) == _FLOAT32:
            return _is_none(call.args[0])
        functions = _FUNCTIONS.get(str(call.args[0].ty), {})
        approximate = functions.get(str(call.op.name))
        return call if approximate is None else let(call.args[0], approximate)

    def store(place: tirx.BufferStore) -> Any:
        value = place.value
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return place
        if str(value.op.name) != "tirx.erf" or str(value.ty) != _FLOAT32:
            return place
        return tirx.BufferStore(place.buffer, let(value.args[0], erf_alone), place.indices)

    body = tvm_ffi.structural_map(func.body, [(tirx.BufferStore, store)])
    return store_named(func.with_body(tvm_ffi.structural_map(body, [(Call, replace)])))


def _exp(x: Any) -> Any:
    def scaled(clamped: Any) -> Any:
        power = tirx.floor(clamped * constant(_LOG2_E) + constant(0.5))
        return let(power, lambda n: reduced(clamped, n))

    def reduced(clamped: Any, n: Any) -> Any:
        rest = clamped - n * constant(_LN2_HIGH) - n * constant(_LN2_LOW)
        return let(rest, lambda r: assemble(n, r))

    def assemble(n: Any, r: Any) -> Any:
        return times_power(polynomial(r, _EXP) * (r * r) + r + constant(1.0), n)

    low, high = _EXP_RANGE
    return _ended(x, _EXP_RANGE, let(clamp(x, low, high), scaled))


def _ended(x: Any, limits: tuple[float, float], finite: Any) -> Any:
    """With zero below limits, so that a mask of minus infinity leaves nothing, and no end above."""
    low, high = limits
    above = tirx.Select(x > constant(high), constant(float("inf")), finite)
    return tirx.Select(x < constant(low), constant(0.0), above)


def _exp2(x: Any) -> Any:
    def scaled(clamped: Any) -> Any:
        whole = tirx.floor(clamped + constant(0.5))
        return let(whole, lambda n: assemble(n, clamped - n))

    def assemble(n: Any, rest: Any) -> Any:
        return times_power(let(rest, lambda r: polynomial(r, EXP2)), n)

    low, high = _EXP2_RANGE
    return _ended(x, _EXP2_RANGE, let(clamp(x, low, high), scaled))


def _sigmoid(x: Any) -> Any:
    return constant(1.0) / (constant(1.0) + let(constant(0.0) - x, _exp))


def _log(x: Any) -> Any:
    """As a power of two times a number near one, whose logarithm the polynomial gives."""

    def split(normal: Any) -> Any:
        bits = tirx.reinterpret("int32", normal) - tirx.const(_SQRT_HALF_BITS, "int32")
        return let(bits, near_one)

    def near_one(bits: Any) -> Any:
        mantissa = (bits & tirx.const(0x7FFFFF, "int32")) + tirx.const(_SQRT_HALF_BITS, "int32")
        rest = tirx.reinterpret(_FLOAT32, mantissa) - constant(1.0)
        exponent = (bits >> tirx.const(23, "int32")).astype(_FLOAT32)
        return let(exponent, lambda e: let(rest, lambda r: assemble(e, r)))

    def assemble(e: Any, r: Any) -> Any:
        small = polynomial(r, _LOG) * (r * r * r) + e * constant(_LN2_LOW) - r * r * constant(0.5)
        return small + r + e * constant(_LN2_HIGH)

    infinity = constant(float("inf"))
    finite = let(clamp(x, _SMALLEST, _LARGEST), split)
    above = tirx.Select(x < infinity, finite, x)
    # Of less than zero there is none, nor of what is no number.
    below = tirx.Select(x == constant(0.0), constant(float("-inf")), constant(float("nan")))
    return tirx.Select(x > constant(0.0), above, below)


def _turn(x: Any, quarters: int) -> Any:
    """The sine of an angle and some quarters of a turn more; reduced in double precision, for in
    float32 nothing would be left of a large one. Beyond 1e15 nothing is left of it here either."""

    def reduced(wide: Any) -> Any:
        turns = tirx.floor(
            wide * tirx.const(0.5 / _QUARTER, "float64") + tirx.const(0.5, "float64")
        )
        return let(turns, lambda k: placed(wide, k))

    def placed(wide: Any, k: Any) -> Any:
        rest = (wide - k * tirx.const(2.0 * _QUARTER, "float64")).astype(_FLOAT32)
        more = k + tirx.const(float(quarters), "float64")
        part = more - tirx.floor(more * tirx.const(0.25, "float64")) * tirx.const(4.0, "float64")
        quarter = part.astype(_FLOAT32)
        angle = clamp(rest, -_QUARTER, _QUARTER)
        return let(quarter, lambda q: let(angle, lambda r: assemble(q, r)))

    def assemble(q: Any, r: Any) -> Any:
        def combined(s: Any) -> Any:
            sine = polynomial(s, _SIN) * s * r + r
            cosine = polynomial(s, _COS) * s * s - s * constant(0.5) + constant(1.0)
            upright = tirx.any(q == constant(1.0), q == constant(3.0))
            value = tirx.Select(upright, cosine, sine)
            return tirx.Select(q >= constant(2.0), constant(0.0) - value, value)

        return let(r * r, combined)

    # Of an infinite angle, as of none, there is no sine.
    value = let(x.astype("float64"), reduced)
    finite = tirx.all(x < constant(float("inf")), x > constant(float("-inf")))
    return tirx.Select(finite, value, constant(float("nan")))


def _sin(x: Any) -> Any:
    return _turn(x, 0)


def _cos(x: Any) -> Any:
    return _turn(x, 1)


def _nearest(x: Any) -> Any:
    """The nearest whole number, of two the even one: beside 2^23 there is room for no other digit.

    The sign is put back, for what is rounded to zero keeps it.
    """

    def signed(bits: Any) -> Any:
        size = tirx.reinterpret(_FLOAT32, bits & word(0x7FFFFFFF))
        # TVM takes a number away that it just added, which would round nothing.
        whole = tirx.reinterpret("uint32", size + constant(_WHOLE)) - word(_WHOLE_BITS)
        whole = tirx.reinterpret("uint32", whole.astype("int32").astype(_FLOAT32))
        near = tirx.reinterpret(_FLOAT32, whole | (bits & word(0x80000000)))
        return tirx.Select(size < constant(_WHOLE), near, x)

    return let(tirx.reinterpret("uint32", x), signed)


def _is_none(x: Any) -> Any:
    """By its bits: LLVM is asked nothing of a vector."""
    return (tirx.reinterpret("uint32", x) & word(0x7FFFFFFF)) > word(0x7F800000)


def _power(call: Call) -> Any:
    """A small whole exponent is a few products; a half, of either sign, is a square root."""
    base, exponent = call.args
    if str(base.ty) != _FLOAT32 or str(exponent.ty) != _FLOAT32:
        return call
    if isinstance(base, tirx.FloatImm) and float(base.value) == 2.0:
        return let(exponent, _exp2)
    if not isinstance(exponent, tirx.FloatImm):
        return power(base, exponent)
    value = float(exponent.value)
    if value == 0.5:
        return tirx.sqrt(base)
    if value == -0.5:
        return _root_below_one(base)
    if value != int(value) or not 1 <= abs(value) <= _MOST_FACTORS:
        return power(base, exponent)

    def product(x: Any) -> Any:
        result, square, left = None, x, int(abs(value))
        while left:
            if left % 2:
                result = square if result is None else result * square
            left //= 2
            square = square * square if left else square
        return result if value > 0 else constant(1.0) / result

    return let(base, product)


def _root_below_one(x: Any) -> Any:
    return constant(1.0) / tirx.sqrt(x)


_APPROXIMATIONS = {
    **FUNCTIONS,
    "tirx.rsqrt": _root_below_one,
    "tirx.exp": _exp,
    "tirx.exp2": _exp2,
    "tirx.log": _log,
    "tirx.sin": _sin,
    "tirx.cos": _cos,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": tanh,
    "tirx.erf": erf,
    "tirx.nearbyint": _nearest,
}

_FUNCTIONS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    _FLOAT32: _APPROXIMATIONS,
    "float64": double_math.FUNCTIONS,
}
"""By type and operator."""
