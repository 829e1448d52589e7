"""The steps of a fast Fourier transform, for as many rows at once as a vector has lanes.

Stockham's: each step goes from one memory to the other and leaves the frequencies in order.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

Complex = tuple[Any, Any]


class Vectors:
    """Memory of complex numbers, of which each is two vectors.

    Parameters
    ----------
    buffer : buffer proxy
        Of one axis.
    lanes : int
        Of a vector.
    """

    def __init__(self, buffer: Any, lanes: int) -> None:
        self.buffer, self._lanes = buffer, lanes

    def load(self, number: Any) -> Complex:
        """A complex number, in variables."""
        return named(self._part(number, 0)), named(self._part(number, 1))

    def store(self, number: Any, value: Complex) -> None:
        """Both parts of a complex number.

        Parameters
        ----------
        number : expression
            Which one.
        value : Complex
            What is stored.
        """
        for part, each in enumerate(value):
            self.buffer[self._at(number, part)] = each

    def _part(self, number: Any, part: int) -> Any:
        return self.buffer[self._at(number, part)]

    def _at(self, number: Any, part: int) -> Any:
        return tirx.Ramp((number * 2 + part) * self._lanes, 1, self._lanes)


def named(value: Any) -> Any:
    """A variable that holds a value."""
    return T.Bind(value)


class Table:
    """Numbers of the unit circle, read one by one.

    Parameters
    ----------
    lanes : int
        Of the vectors that are multiplied by them.
    """

    def __init__(self, lanes: int) -> None:
        self._values, self._lanes = list[complex](), lanes
        self.buffer: Any = None

    def add(self, values: Sequence[complex]) -> int:
        """Where they stand."""
        self._values.extend(values)
        return len(self._values) - len(values)

    def array(self) -> NDArray[np.float32]:
        """All of them, both parts by turns."""
        pairs = np.array(self._values or [0j]).view(np.float64)
        return pairs.astype(np.float32)

    def load(self, place: Any) -> Complex:
        """One of them, as vectors of equal numbers."""
        real, imaginary = (
            named(tirx.Broadcast(self.buffer[place * 2 + part], self._lanes)) for part in range(2)
        )
        return real, imaginary


def product(one: Complex, two: Complex) -> Complex:
    """Of two complex numbers.

    Parameters
    ----------
    one, two : Complex
        Each part a vector.

    Returns
    -------
    Complex
        Expressions.
    """
    return one[0] * two[0] - one[1] * two[1], one[0] * two[1] + one[1] * two[0]


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
    even, odd = _named(ar + cr, ai + ci), _named(ar - cr, ai - ci)
    up, over = _named(br + dr, bi + di), _named(br - dr, bi - di)
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
        sums.append(_named(one[0] + two[0], one[1] + two[1]))
        differences.append(_named(one[0] - two[0], one[1] - two[1]))
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


def _named(real: Any, imaginary: Any) -> Complex:
    return named(real), named(imaginary)


_BUTTERFLIES: dict[int, Callable[[Sequence[Complex], bool], list[Complex]]] = {2: _two, 4: _four}
