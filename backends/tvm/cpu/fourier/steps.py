"""The steps of a fast Fourier transform, for as many rows at once as a vector has lanes.

Stockham's: each step goes from one memory to the other and leaves the frequencies in order.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from collage.backends.tvm.common.fourier import WRITTEN_OUT
from collage.backends.tvm.cpu.fourier.primes import PrimeStep
from collage.backends.tvm.cpu.fourier.vectors import (
    Complex,
    Table,
    Vectors,
    named,
    named_pair,
    product,
)


def plan(points: int, factors: Sequence[int], table: Table, *, inverse: bool) -> list[int]:
    """Puts the factors between the parts of each step into a table.

    Parameters
    ----------
    points : int
        Of the transform.
    factors : sequence of int
        Of the steps.
    table : Table
        What they are added to.
    inverse : bool
        Whether angles turn forward.

    Returns
    -------
    list of int
        Where those of each step begin.
    """
    turn = 2j * math.pi * (1 if inverse else -1)
    begins, rest = list[int](), points
    for radix in factors:
        parts = rest // radix
        begins.append(
            table.add(
                [cmath.exp(turn * p * k / rest) for p in range(parts) for k in range(1, radix)]
            )
        )
        if radix > WRITTEN_OUT:
            table.add([cmath.exp(turn * k / radix) for k in range(radix)])
        rest = parts
    return begins


def transform(
    source: Vectors,
    other: Vectors,
    points: int,
    factors: Sequence[int],
    begins: Sequence[int],
    table: Table,
    *,
    inverse: bool,
) -> Vectors:
    """Emits all steps.

    Parameters
    ----------
    source, other : Vectors
        Of the values, and as much memory besides; both are overwritten.
    points, factors, begins, table, inverse
        As of :func:`plan`.

    Returns
    -------
    Vectors
        Whichever of the two the frequencies are in.
    """
    rest, stride = points, 1
    for radix, begin in zip(factors, begins, strict=True):
        parts = rest // radix
        if radix > WRITTEN_OUT:
            at = begin + parts * (radix - 1)
            whole = PrimeStep(radix, parts, stride, (begin, at), table, inverse=inverse)
            whole.step(source, other)
            source, other = other, source
            rest, stride = parts, stride * radix
            continue
        with T.serial(0, parts) as p:
            turns = [table.load(begin + p * (radix - 1) + k) for k in range(radix - 1)]
            with T.serial(0, stride) as q:
                values = [source.load(q + stride * (p + parts * j)) for j in range(radix)]
                for k, value in enumerate(_BUTTERFLIES.get(radix, _direct)(values, inverse)):
                    turned = value if k == 0 or parts == 1 else product(value, turns[k - 1])
                    other.store(q + stride * (radix * p + k), turned)
        source, other = other, source
        rest, stride = parts, stride * radix
    return source


def _two(values: Sequence[Complex], inverse: bool) -> list[Complex]:
    (a, b), (c, d) = values
    return [(a + c, b + d), (a - c, b - d)]


def _four(values: Sequence[Complex], inverse: bool) -> list[Complex]:
    (ar, ai), (br, bi), (cr, ci), (dr, di) = values
    even, odd = named_pair(ar + cr, ai + ci), named_pair(ar - cr, ai - ci)
    up, over = named_pair(br + dr, bi + di), named_pair(br - dr, bi - di)
    behind = odd[0] + over[1], odd[1] - over[0]
    ahead = odd[0] - over[1], odd[1] + over[0]
    second, last = (ahead, behind) if inverse else (behind, ahead)
    middle = even[0] - up[0], even[1] - up[1]
    return [(even[0] + up[0], even[1] + up[1]), second, middle, last]


def _direct(values: Sequence[Complex], inverse: bool) -> list[Complex]:
    """Of an odd prime: sums and differences of opposite values, weighed."""
    radix = len(values)
    half = (radix - 1) // 2
    first = values[0]
    sums, differences = list[Complex](), list[Complex]()
    for j in range(1, half + 1):
        one, two = values[j], values[radix - j]
        sums.append(named_pair(one[0] + two[0], one[1] + two[1]))
        differences.append(named_pair(one[0] - two[0], one[1] - two[1]))
    results: list[Complex] = [(first[0], first[1])] * radix
    whole = [first[0], first[1]]
    for each in sums:
        whole = [whole[0] + each[0], whole[1] + each[1]]
    results[0] = (whole[0], whole[1])
    for k in range(1, half + 1):
        real, imaginary = first
        down, up = None, None
        for j in range(1, half + 1):
            angle = 2 * math.pi * (j * k % radix) / radix
            cosine, sine = (
                tirx.const(each, real.ty) for each in (math.cos(angle), math.sin(angle))
            )
            real = real + sums[j - 1][0] * cosine
            imaginary = imaginary + sums[j - 1][1] * cosine
            gone = differences[j - 1][1] * sine, differences[j - 1][0] * sine
            down = gone[0] if down is None else down + gone[0]
            up = gone[1] if up is None else up + gone[1]
        real, imaginary, down, up = (named(each) for each in (real, imaginary, down, up))
        ahead, behind = (real + down, imaginary - up), (real - down, imaginary + up)
        results[k], results[radix - k] = (behind, ahead) if inverse else (ahead, behind)
    return results


_BUTTERFLIES: dict[int, Callable[[Sequence[Complex], bool], list[Complex]]] = {2: _two, 4: _four}
