"""Vectorizable ``exp``, ``log`` and ``sigmoid`` of float64 numbers, to a unit in the last place.

LLVM calls a library for each lane of any of them. The logarithm is FreeBSD's (``e_log.c``), the
exponential a polynomial behind the same reduction. Denormal numbers are zero.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from collage.backends.tvm.cpu.wide_math import double, double_polynomial, let

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ODD = (1.531383769920937332e-01, 2.222219843214978396e-01, 3.999999999940941908e-01)
_EVEN = (
    1.479819860511658591e-01, 1.818357216161805012e-01, 2.857142874366239149e-01,
    6.666666666666735130e-01,
)  # fmt: skip
"""Of the powers of the square of a quotient, every second in each."""

_EXP = (
    2.510038549551032e-08, 2.7620088445409746e-07, 2.7557268459997064e-06, 2.4801521295954376e-05,
    1.9841269863053618e-04, 1.3888888917213717e-03, 8.333333333330062e-03, 4.166666666662413e-02,
    1.6666666666666669e-01, 5.000000000000001e-01,
)  # fmt: skip
"""Interpolated at Chebyshev's nodes: off by less than a tenth of the last place."""

_EXP_RANGE = (-708.39, 709.782712893384)
_SMALLEST, _LARGEST = 2.2250738585072014e-308, 1.7976931348623157e308
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def exp(x: Any) -> Any:
    """Of any number.

    Parameters
    ----------
    x : expression
        In float64; a variable, for it is used several times.

    Returns
    -------
    expression
        Zero where the result is no normal number.
    """

    def scaled(clamped: Any) -> Any:
        whole = tirx.floor(clamped * double(1 / math.log(2)) + double(0.5))
        return let(whole, lambda n: reduced(clamped, n))

    def reduced(clamped: Any, n: Any) -> Any:
        rest = clamped - n * double(_LN2_HIGH) - n * double(_LN2_LOW)
        return let(rest, lambda r: assemble(n, r))

    def assemble(n: Any, r: Any) -> Any:
        mantissa = double_polynomial(r, _EXP) * (r * r) + r + double(1.0)
        bits = n.astype("int32").astype("int64") << tirx.const(52, "int64")
        return tirx.reinterpret("float64", tirx.reinterpret("int64", mantissa) + bits)

    low, high = _EXP_RANGE
    finite = let(tirx.max(double(low), tirx.min(double(high), x)), scaled)
    above = tirx.Select(x > double(high), double(math.inf), finite)
    return tirx.Select(x < double(low), double(0.0), above)


def log(x: Any) -> Any:
    """The natural one.

    Parameters
    ----------
    x : expression
        In float64; a variable.

    Returns
    -------
    expression
        None of what is below zero, or no number; of zero infinitely little.
    """

    def split(bits: Any) -> Any:
        mantissa = bits & tirx.const(0xFFFFFFFFFFFFF, "int64")
        near = tirx.reinterpret("float64", mantissa + tirx.const(_SQRT_HALF_BITS, "int64"))
        exponent = (bits >> tirx.const(52, "int64")).astype("int32").astype("float64")
        return let(near - double(1.0), lambda f: assemble(f, exponent))

    def assemble(f: Any, e: Any) -> Any:
        half = double(0.5) * f * f

        def series(s: Any, z: Any) -> Any:
            w = z * z
            odd, even = double_polynomial(w, _ODD), double_polynomial(w, _EVEN)
            rest = s * (half + w * odd + z * even) + e * double(_LN2_LOW)
            return e * double(_LN2_HIGH) - ((half - rest) - f)

        return let(f / (f + double(2.0)), lambda s: let(s * s, lambda z: series(s, z)))

    clamped = tirx.max(double(_SMALLEST), tirx.min(double(_LARGEST), x))
    bits = tirx.reinterpret("int64", clamped) - tirx.const(_SQRT_HALF_BITS, "int64")
    finite = let(bits, split)
    above = tirx.Select(x < double(math.inf), finite, x)
    below = tirx.Select(x == double(0.0), double(-math.inf), double(math.nan))
    return tirx.Select(x > double(0.0), above, below)


def sigmoid(x: Any) -> Any:
    """One share of two, by the difference of their logarithms.

    Parameters
    ----------
    x : expression
        In float64.

    Returns
    -------
    expression
        Between zero and one.
    """
    return double(1.0) / (double(1.0) + let(double(0.0) - x, exp))


FUNCTIONS = {"tirx.exp": exp, "tirx.log": log, "tirx.sigmoid": sigmoid}
"""By the names of TVM's operators, of one argument."""
