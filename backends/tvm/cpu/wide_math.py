"""Vectorizable inverse, hyperbolic and general powers of float32 numbers, computed in float64.

LLVM calls a library for each lane of any of them. With half of a vector's lanes and no care for
rounding, for of 53 digits a few may be lost, they take less than what the library does in float32,
and are nearer: the polynomials (least squares of the relative error at Chebyshev nodes) are exact
to 1e-10, so that results are rounded once. Denormal numbers are ordinary ones here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

_WIDE, _NARROW = "float64", "float32"

_ATAN = (
    -6.675790538478677e-4, 4.755741687887628e-3, -1.588422123899961e-2, 3.3902247754209774e-2,
    -5.402099760312405e-2, 7.231780525450268e-2, -8.975399657873821e-2, 1.1092192088380871e-1,
    -1.4283847806173294e-1, 1.9999903388586718e-1, -3.333333135030821e-1, 9.999999999318809e-1,
)  # fmt: skip
_ASIN = (
    3.4825934348800505e-2, 7.3335393628760695e-3, 2.4673911777086624e-2, 3.0098607161142765e-2,
    4.4661477451908696e-2, 7.499940515665544e-2, 1.66666673856434e-1, 9.999999999858157e-1,
)  # fmt: skip
_SIN = (
    2.717110192255123e-6, -1.9839173658721838e-4, 8.333328674196123e-3, -1.6666666630275603e-1,
    9.999999999954223e-1,
)  # fmt: skip
_COS = (
    -2.716775644347493e-7, 2.479884064949673e-5, -1.3888879913951772e-3, 4.16666665332476e-2,
    -4.999999999926892e-1, 9.999999999999338e-1,
)  # fmt: skip
_LOG = (
    2.361799893795698e-1, 2.8534965206590107e-1, 4.000038605446646e-1, 6.666666524050413e-1,
    2.000000000008414,
)  # fmt: skip
_EXP2 = (
    1.519557860944264e-5, 1.5469236448211035e-4, 1.3333950076934978e-3, 9.618027458095793e-3,
    5.550410319500051e-2, 2.402265119625153e-1, 6.931471807388244e-1, 9.999999999619439e-1,
)  # fmt: skip
_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11
"""The first has 33 digits: its products with numbers of quarters up to a million are exact."""

_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_MOST_BITS = 200.0
"""Powers of two beyond, of either sign, are infinite or zero in float32."""


def let(value: Any, body: Callable[[Any], Any]) -> Any:
    """``let x = value in body(x)``: the argument is computed once, however often it is used.

    Parameters
    ----------
    value : expression
        The argument.
    body : callable
        Makes an expression of the variable that holds it.

    Returns
    -------
    tirx.Let
        Of the type of what ``body`` makes.
    """
    var = tirx.Var("x", str(value.ty))
    return tirx.Let(var, value, body(var))


def in_float64(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of float32 numbers by one of float64 numbers."""
    return lambda x: let(x.astype(_WIDE), function).astype(_NARROW)


def double(value: float) -> Any:
    """A constant in float64."""
    return tirx.const(value, _WIDE)


def double_polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """From the highest power on.

    Parameters
    ----------
    x : expression
        In float64; used as often as there are powers.
    coefficients : sequence of float
        One more than powers.

    Returns
    -------
    expression
        By Horner's rule.
    """
    result = double(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + double(coefficient)
    return result


def _size(x: Any) -> Any:
    bits = tirx.reinterpret("int64", x) & tirx.const(0x7FFFFFFFFFFFFFFF, "int64")
    return tirx.reinterpret(_WIDE, bits)


def _is_none(x: Any) -> Any:
    """By its bits: that a number differs from itself TVM takes for false."""
    bits = tirx.reinterpret("int64", x) & tirx.const(0x7FFFFFFFFFFFFFFF, "int64")
    return bits > tirx.const(0x7FF0000000000000, "int64")


def _with_sign(size: Any, x: Any) -> Any:
    """A number of no sign yet with that of another, zero's included."""
    sign = tirx.reinterpret("int64", x) & tirx.const(-0x8000000000000000, "int64")
    return tirx.reinterpret(_WIDE, tirx.reinterpret("int64", size) | sign)


def _odd(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An odd function by what it is of numbers that are not negative."""
    return lambda x: _with_sign(let(_size(x), function), x)


def _first_octant(s: Any) -> Any:
    return s * let(s * s, lambda z: double_polynomial(z, _ATAN))


def _atan(a: Any) -> Any:
    part = tirx.Select(a > double(1.0), double(1.0) / a, a)
    near = let(part, _first_octant)
    return let(near, lambda v: tirx.Select(a > double(1.0), double(math.pi / 2) - v, v))


def arctangent2(y: Any, x: Any) -> Any:
    """The angle of a point, as C's ``atan2f`` has it.

    Parameters
    ----------
    y, x : expression
        Its place, in float32.

    Returns
    -------
    expression
        In float32.
    """

    def of_sizes(up: Any, along: Any, right: Any) -> Any:
        most, least = tirx.max(up, along), tirx.min(up, along)
        same = tirx.any(up == along, most == double(0.0))
        # Of nothing there is no quotient, nor of two infinite ones.
        alike = tirx.Select(most == double(0.0), double(0.0), double(1.0))
        part = tirx.Select(same, alike, least / most)

        def placed(v: Any) -> Any:
            steep = tirx.Select(up > along, double(math.pi / 2) - v, v)
            left = tirx.reinterpret("int64", right) < tirx.const(0, "int64")
            return let(steep, lambda angle: tirx.Select(left, double(math.pi) - angle, angle))

        return let(let(part, _first_octant), placed)

    def angle(up: Any, right: Any) -> Any:
        size = let(_size(up), lambda u: let(_size(right), lambda a: of_sizes(u, a, right)))
        none = tirx.any(_is_none(up), _is_none(right))
        return tirx.Select(none, double(math.nan), _with_sign(size, up)).astype(_NARROW)

    return let(y.astype(_WIDE), lambda up: let(x.astype(_WIDE), lambda right: angle(up, right)))


def _asin_size(a: Any) -> Any:
    """Beyond a half by the half of the angle's complement; beyond one there is none."""
    large = a > double(0.5)
    rest = let((double(1.0) - a) * double(0.5), lambda z: tirx.Select(large, tirx.sqrt(z), a))

    def joined(s: Any) -> Any:
        value = s * let(s * s, lambda z: double_polynomial(z, _ASIN))
        return let(value, lambda v: tirx.Select(large, double(math.pi / 2) - double(2.0) * v, v))

    return let(rest, joined)


def _acos(x: Any) -> Any:
    return double(math.pi / 2) - _odd(_asin_size)(x)


def _tan(x: Any) -> Any:
    def reduced(k: Any) -> Any:
        rest = x - k * double(_HALF_PI_HIGH) - k * double(_HALF_PI_LOW)
        odd = k - tirx.floor(k * double(0.5)) * double(2.0) == double(1.0)
        return let(rest, lambda r: let(r * r, lambda z: quotient(odd, r, z)))

    def quotient(odd: Any, r: Any, z: Any) -> Any:
        def chosen(sine: Any, cosine: Any) -> Any:
            above = tirx.Select(odd, double(0.0) - cosine, sine)
            return above / tirx.Select(odd, sine, cosine)

        sine, cosine = r * double_polynomial(z, _SIN), double_polynomial(z, _COS)
        return let(sine, lambda s: let(cosine, lambda c: chosen(s, c)))

    quarters = tirx.floor(x * double(2.0 / math.pi) + double(0.5))
    finite = tirx.all(x < double(math.inf), x > double(-math.inf))
    return tirx.Select(finite, let(quarters, reduced), double(math.nan))


def _log(a: Any) -> Any:
    """The natural one of a positive finite number; of others it is any number."""

    def split(bits: Any) -> Any:
        mantissa = bits & tirx.const(0xFFFFFFFFFFFFF, "int64")
        near = tirx.reinterpret(_WIDE, mantissa + tirx.const(_SQRT_HALF_BITS, "int64"))
        exponent = (bits >> tirx.const(52, "int64")).astype("int32").astype(_WIDE)
        return let(near, lambda m: let(exponent, lambda e: assemble(m, e)))

    def assemble(m: Any, e: Any) -> Any:
        part = (m - double(1.0)) / (m + double(1.0))
        near = let(part, lambda s: s * let(s * s, lambda z: double_polynomial(z, _LOG)))
        return e * double(math.log(2)) + near

    return let(tirx.reinterpret("int64", a) - tirx.const(_SQRT_HALF_BITS, "int64"), split)


def _power_of_two(p: Any) -> Any:
    def split(limited: Any) -> Any:
        return let(tirx.floor(limited + double(0.5)), lambda n: assemble(limited - n, n))

    def assemble(rest: Any, n: Any) -> Any:
        bits = (n.astype("int32") + tirx.const(1023, "int32")).astype("int64")
        scale = tirx.reinterpret(_WIDE, bits << tirx.const(52, "int64"))
        return let(rest, lambda r: double_polynomial(r, _EXP2)) * scale

    return let(tirx.max(double(-_MOST_BITS), tirx.min(double(_MOST_BITS), p)), split)


def _asinh(a: Any) -> Any:
    def value(whole: Any) -> Any:
        small = a - a * a * a * double(1 / 6)
        infinite = tirx.any(a == double(math.inf), _is_none(a))
        return tirx.Select(a < double(1e-3), small, tirx.Select(infinite, a, whole))

    return let(let(a + tirx.sqrt(a * a + double(1.0)), _log), value)


def _acosh(x: Any) -> Any:
    def value(whole: Any) -> Any:
        beyond = tirx.Select(x == double(math.inf), x, double(math.nan))
        inside = tirx.all(x >= double(1.0), x < double(math.inf))
        return tirx.Select(inside, whole, beyond)

    return let(let(x + tirx.sqrt((x - double(1.0)) * (x + double(1.0))), _log), value)


def _atanh(a: Any) -> Any:
    def value(whole: Any) -> Any:
        small = a + a * a * a * double(1 / 3)
        beyond = tirx.Select(a == double(1.0), double(math.inf), double(math.nan))
        near = tirx.Select(a < double(1.0), whole * double(0.5), beyond)
        return tirx.Select(a < double(1e-3), small, near)

    return let(let((double(1.0) + a) / (double(1.0) - a), _log), value)


def _exponential(a: Any) -> Any:
    """Of a size; what is no number stays none."""
    return let(
        _power_of_two(a * double(1 / math.log(2))),
        lambda value: tirx.Select(_is_none(a), a, value),
    )


def _sinh(a: Any) -> Any:
    def value(grown: Any) -> Any:
        small = a + a * a * a * double(1 / 6)
        return tirx.Select(a < double(1e-3), small, (grown - double(1.0) / grown) * double(0.5))

    return let(_exponential(a), value)


def _cosh(x: Any) -> Any:
    return let(
        let(_size(x), _exponential),
        lambda grown: (grown + double(1.0) / grown) * double(0.5),
    )


def power(base: Any, exponent: Any) -> Any:
    """Any power of a number, as C's ``powf`` has it.

    Parameters
    ----------
    base, exponent : expression
        In float32.

    Returns
    -------
    expression
        In float32.
    """

    def raised(x: Any, y: Any) -> Any:
        return let(
            _size(x),
            lambda a: let(y * let(a, _log) * double(1 / math.log(2)), lambda p: size(x, y, a, p)),
        )

    def size(x: Any, y: Any, a: Any, p: Any) -> Any:
        above, below = y > double(0.0), y < double(0.0)
        infinite = a == double(math.inf)
        extreme = tirx.Select(tirx.Select(infinite, below, above), double(0.0), double(math.inf))
        ends = tirx.any(infinite, a == double(0.0))
        found = tirx.Select(
            ends, extreme, tirx.Select(a == double(1.0), double(1.0), _power_of_two(p))
        )
        return let(found, lambda value: signed(x, y, value))

    def signed(x: Any, y: Any, value: Any) -> Any:
        odd = y - tirx.floor(y * double(0.5)) * double(2.0) == double(1.0)
        negative = tirx.reinterpret("int64", x) < tirx.const(0, "int64")
        turned = tirx.Select(tirx.all(negative, odd), double(0.0) - value, value)
        finite = tirx.all(x < double(0.0), x > double(-math.inf))
        none = tirx.any(_is_none(x), _is_none(y), tirx.all(finite, y != tirx.floor(y)))
        one = tirx.any(y == double(0.0), x == double(1.0))
        return tirx.Select(one, double(1.0), tirx.Select(none, double(math.nan), turned))

    wide = let(base.astype(_WIDE), lambda x: let(exponent.astype(_WIDE), lambda y: raised(x, y)))
    return wide.astype(_NARROW)


FUNCTIONS = {
    "tirx.tan": in_float64(_tan),
    "tirx.asin": in_float64(_odd(_asin_size)),
    "tirx.acos": in_float64(_acos),
    "tirx.atan": in_float64(_odd(_atan)),
    "tirx.sinh": in_float64(_odd(_sinh)),
    "tirx.cosh": in_float64(_cosh),
    "tirx.asinh": in_float64(_odd(_asinh)),
    "tirx.acosh": in_float64(_acosh),
    "tirx.atanh": in_float64(_odd(_atanh)),
}
"""By the names of TVM's operators, of one argument."""
