"""Vectorizable remainders of float32 numbers, exact as those of C's ``fmodf``.

LLVM calls the library for each lane. In float64 what the product of a divisor and a quotient leaves
is exact, where the product itself is not rounded and the quotient is off by a few; larger quotients
than 2^50 are taken in steps, of the divisor times powers of two, whose remainders leave the same.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from collage.backends.tvm.cpu.wide_math import double, let

_STEP_BITS = 50
_MOST_BITS = 100
"""Of the largest step; what has a quotient of more than these and a step's has no remainder here.
PyTorch has none from 2^128 on."""


def remainder(x: Any, y: Any) -> Any:
    """What whole multiples of a divisor leave, with the dividend's sign.

    Parameters
    ----------
    x, y : expression
        Dividend and divisor, in float32.

    Returns
    -------
    expression
        In float32; of what is infinite there is none, nor by zero; an infinite divisor leaves all.
    """

    def stepped(rest: Any, by: Any, part: Any, bits: int) -> Any:
        scale = 2.0**bits
        quotient = tirx.floor(rest * (part * double(1.0 / scale)))
        left = _left(rest, quotient, by * double(scale))
        if bits:
            return let(left, lambda r: stepped(r, by, part, bits - _STEP_BITS))
        # The last quotient had few digits, but may have been off by one.
        return let(left, lambda r: let(quotient_of(r, part), lambda q: placed(r, q, by)))

    def quotient_of(rest: Any, part: Any) -> Any:
        return tirx.floor(rest * part)

    def placed(rest: Any, quotient: Any, by: Any) -> Any:
        near = _left(rest, quotient, by)
        above = let(near, lambda r: tirx.Select(r < double(0.0), r + by, r))
        return let(above, lambda r: tirx.Select(r < by, r, r - by))

    def of_sizes(size: Any, by: Any) -> Any:
        found = let(double(1.0) / by, lambda part: stepped(size, by, part, _MOST_BITS))
        whole = tirx.Select(by == double(math.inf), size, found)
        most = double(2.0 ** (_MOST_BITS + _STEP_BITS))
        some = tirx.all(size < double(math.inf), size < by * most)
        return tirx.Select(some, whole, double(math.nan))

    wide = let(
        _size(x).astype("float64"),
        lambda a: let(_size(y).astype("float64"), lambda b: of_sizes(a, b)),
    )
    narrow = tirx.reinterpret("uint32", wide.astype("float32"))
    sign = tirx.reinterpret("uint32", x) & tirx.const(0x80000000, "uint32")
    return tirx.reinterpret("float32", narrow | sign)


def _left(rest: Any, quotient: Any, by: Any) -> Any:
    """What is left without a product, rounded once."""
    return tirx.call_llvm_pure_intrin("float64", "llvm.fma", double(0.0) - quotient, by, rest)


def _size(x: Any) -> Any:
    bits = tirx.reinterpret("uint32", x) & tirx.const(0x7FFFFFFF, "uint32")
    return tirx.reinterpret("float32", bits)
