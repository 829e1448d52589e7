"""Which Fourier transform a matrix of constants stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from collage.backends.relax.fourier import transform_matrix

Kind = Literal["from_real", "to_real", "complex"]
_NEAR = 1e-6
_RADICES = (4, 3, 5, 2, 7, 11, 13)


@dataclass(frozen=True)
class Transform:
    """A transform of rows, in which real and imaginary parts lie by turns.

    Attributes
    ----------
    kind : str
        ``from_real``: half of the frequencies of real values, ``to_real``: back from those,
        ``complex``: of complex values.
    length : int
        Real values, or complex ones.
    inverse : bool
        Whether angles turn forward.
    scale : float
        What the sums are multiplied by.
    """

    kind: Kind
    length: int
    inverse: bool
    scale: float

    @property
    def points(self) -> int:
        """Complex values that are transformed: pairs of real ones, where there are pairs."""
        return self.length if self.kind == "complex" else self.length // 2

    @property
    def rows(self) -> int:
        """Numbers that go in."""
        return self._numbers("from_real")

    @property
    def columns(self) -> int:
        """Numbers that come out."""
        return self._numbers("to_real")

    def _numbers(self, real: Kind) -> int:
        """Where values of one kind are real; frequencies have their two ends."""
        if self.kind == "complex":
            return 2 * self.length
        return self.length + (2 if self.kind != real else 0)


def recognized(matrix: NDArray[Any]) -> Transform | None:
    """The transform that a matrix is, times a number.

    Parameters
    ----------
    matrix : ndarray
        Numbers in by numbers out.

    Returns
    -------
    Transform or None
        None where it is none, or one of a length that has a large prime factor or, of real values,
        is odd.

    Examples
    --------
    >>> matrix = transform_matrix(8, 5)[:, :1].reshape(8, 10)
    >>> recognized(matrix * 0.5).kind
    'from_real'
    >>> recognized(np.ones((8, 10))) is None
    True
    """
    rows, columns = matrix.shape
    if min(rows, columns) < 8 or rows % 2 or columns % 2:
        return None
    # The first row goes to all frequencies alike, or comes from the first of them.
    scale = float(matrix[0, 0])
    first = matrix[0] - scale * (np.arange(columns) % 2 == 0)
    even = np.abs(first).max() <= _NEAR * abs(scale)
    flat = np.abs(matrix[0] - scale).max() <= _NEAR * abs(scale)
    if not scale or not (even or flat):
        return None
    for kind, inverse in _candidates(rows, columns, flat=flat):
        lengths: dict[Kind, int] = {"complex": columns // 2, "from_real": rows, "to_real": columns}
        length = lengths[kind]
        found = Transform(kind, length, inverse, scale)
        if factors(found.points) and _same(matrix, found):
            return found
    return None


def _candidates(rows: int, columns: int, *, flat: bool) -> list[tuple[Kind, bool]]:
    if flat:
        return [("to_real", True)] if rows == columns + 2 else []
    if rows == columns:
        return [("complex", False), ("complex", True)]
    return [("from_real", False)] if columns == rows + 2 else []


def _same(matrix: NDArray[Any], found: Transform) -> bool:
    real_back = found.kind == "to_real"
    bins = found.length if found.kind == "complex" else found.length // 2 + 1
    whole = transform_matrix(found.length, bins, inverse=found.inverse, real_back=real_back)
    parts = whole[:, :1] if found.kind == "from_real" else whole
    wanted = parts.reshape(matrix.shape) * (found.length if found.inverse else 1)
    return bool(np.abs(matrix - found.scale * wanted).max() <= 4 * _NEAR * abs(found.scale))


def factors(points: int) -> tuple[int, ...]:
    """The factors of a length, from that of the first step on; none of a length with a large one.

    Parameters
    ----------
    points : int
        The length.

    Returns
    -------
    tuple of int
        Each small enough to be written out.

    Examples
    --------
    >>> factors(200), factors(41)
    ((4, 5, 5, 2), ())
    """
    found = list[int]()
    for radix in _RADICES:
        while points % radix == 0:
            points //= radix
            found.append(radix)
    return tuple(found) if points == 1 else ()
