"""Memory of complex numbers in vectors, and tables of numbers of the unit circle."""

from __future__ import annotations

from collections.abc import Sequence
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

    @property
    def lanes(self) -> int:
        """Of a vector."""
        return self._lanes

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
            self.store_part(number, part, each)

    def store_part(self, number: Any, part: int, value: Any) -> None:
        """One part of a complex number.

        Parameters
        ----------
        number : expression
            Which one.
        part : int
            0 for the real one.
        value : expression
            A vector.
        """
        self.buffer[self._at(number, part)] = value

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


def named_pair(real: Any, imaginary: Any) -> Complex:
    """A complex number in variables.

    Parameters
    ----------
    real, imaginary : expression
        Its parts.

    Returns
    -------
    Complex
        The variables.
    """
    return named(real), named(imaginary)
