"""Functions of float32 numbers that end at one: ``tanh`` and ``erf``; and what all have in common.

Near zero they are Cephes' and N. Juffa's polynomials, beyond one less what is left. The ratio for
``erf`` within longer expressions is Eigen's, also used by TVM's own ``topi.fast_erf``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from collage.backends.tvm.cpu.wide_math import let

_FLOAT32 = "float32"
_LOG2_E = 1.44269504088896341
_TWICE_LOG2_E = 2.8853900432586670
"""In float32."""

EXP2 = (
    1.533757683138692e-4, 1.3399860364524821e-3, 9.61851953438168e-3, 5.550328997513609e-2,
    2.402264660871325e-1, 6.931472056005132e-1, 1.0,
)  # fmt: skip
_TANH_NEAR = 0.625
_TANH = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
_TANH_FAR = 10.0
_ERF_NEAR = 0.927734375
_ERF = (
    -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1,
)  # fmt: skip
_ERF_FAR = (
    -2.493748440e-05, 5.528365934e-04, -5.603376150e-03, 3.499202273e-02, -1.540479136e-01,
    -9.158901671e-01, -1.628395157e+00,
)  # fmt: skip
_ERF_RANGE = 4.0
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip


def constant(value: float) -> Any:
    """A number in float32."""
    return tirx.const(value, _FLOAT32)


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """From the highest power on.

    Parameters
    ----------
    x : expression
        In float32; used as often as there are powers.
    coefficients : tuple of float
        One more than powers.

    Returns
    -------
    expression
        By Horner's rule.
    """
    result = constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + constant(coefficient)
    return result


def clamp(x: Any, low: float, high: float) -> Any:
    """Between two limits; what is no number stays that.

    Parameters
    ----------
    x : expression
        In float32.
    low, high : float
        The limits.

    Returns
    -------
    expression
        In float32.

    Notes
    -----
    LLVM's code for ``min`` and ``max`` gives the second operand where they do not compare. A choice
    that names its operand twice would double what TVM takes for each function inside another.
    """
    return tirx.max(constant(low), tirx.min(constant(high), x))


def times_power(mantissa: Any, n: Any) -> Any:
    """By a power of two, in the exponent: the 128th, halves of which are wanted, is no number.

    Parameters
    ----------
    mantissa : expression
        In float32.
    n : expression
        A whole number in float32.

    Returns
    -------
    expression
        In float32.
    """
    bits = tirx.reinterpret("int32", mantissa) + (n.astype("int32") << tirx.const(23, "int32"))
    return tirx.reinterpret(_FLOAT32, bits)


def word(value: int) -> Any:
    """A whole number of 32 bits."""
    return tirx.const(value, "uint32")


def tanh(x: Any) -> Any:
    """Near zero by a polynomial; beyond by how little is left to one."""

    def joined(a: Any) -> Any:
        near = let(a * a, lambda s: a * s * polynomial(s, _TANH) + a)
        power = let(tirx.min(constant(_TANH_FAR), a), _squared_power)
        rest = constant(1.0) - constant(2.0) / (power + constant(1.0))
        return tirx.Select(a >= constant(_TANH_NEAR), rest, near)

    return _odd(x, joined)


def _squared_power(a: Any) -> Any:
    """``exp(2 a)`` of what is not large: the product is not rounded before it is reduced."""
    whole = tirx.floor(a * constant(2 * _LOG2_E) + constant(0.5))

    def assemble(n: Any) -> Any:
        rest = a * constant(_TWICE_LOG2_E) - n + a * constant(2 * _LOG2_E - _TWICE_LOG2_E)
        return times_power(let(rest, lambda r: polynomial(r, EXP2)), n)

    return let(whole, assemble)


def erf(x: Any) -> Any:
    """Where more is done with it: a ratio that loses a few digits near one."""

    def ratio(c: Any) -> Any:
        return let(c * c, lambda s: c * polynomial(s, _ERF_P) / polynomial(s, _ERF_Q))

    return let(clamp(x, -_ERF_RANGE, _ERF_RANGE), ratio)


def erf_alone(x: Any) -> Any:
    """Near zero by a polynomial; beyond one less a power (N. Juffa's two polynomials)."""

    def joined(a: Any) -> Any:
        near = let(a * a, lambda s: a * polynomial(s, _ERF) + a)
        far = let(tirx.min(constant(_ERF_RANGE), a), lambda t: t * polynomial(t, _ERF_FAR))
        rest = constant(1.0) - let(far, _power_of_two)
        return tirx.Select(a >= constant(_ERF_NEAR), rest, near)

    return _odd(x, joined)


def _power_of_two(x: Any) -> Any:
    """Of what is neither so large nor so small that the result is no normal number."""
    whole = tirx.floor(x + constant(0.5))
    return let(whole, lambda n: times_power(let(x - n, lambda rest: polynomial(rest, EXP2)), n))


def _odd(x: Any, of_size: Callable[[Any], Any]) -> Any:
    """By what it is of the number's size, with its sign."""
    pattern = tirx.reinterpret("uint32", x)

    def signed(value: Any) -> Any:
        turned = tirx.reinterpret("uint32", value) | (pattern & word(0x80000000))
        return tirx.reinterpret(_FLOAT32, turned)

    size = tirx.reinterpret(_FLOAT32, pattern & word(0x7FFFFFFF))
    return let(let(size, of_size), signed)
