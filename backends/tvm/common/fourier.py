"""Which Fourier transform a matrix of constants stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from collage.backends.relax.fourier import transform_matrix

Kind = Literal["from_real", "to_real", "complex"]
_NEAR = 1e-6
_SMALLEST_HALF, _LARGE = 2.0**-24, 0.01
_RADICES = (4, 3, 5, 2, 7, 11, 13)
WRITTEN_OUT, LARGEST = 13, 1200
"""Of the factors: the largest whose step is without a loop, and the largest for which there is a
step."""


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
    window : tuple of float, optional
        What real values that come out are multiplied by besides, one by one.
    """

    kind: Kind
    length: int
    inverse: bool
    scale: float
    window: tuple[float, ...] = ()

    @property
    def points(self) -> int:
        """Complex values that are transformed: pairs of real ones, where there are pairs."""
        return self.length if self.kind == "complex" or self.odd else self.length // 2

    @property
    def odd(self) -> bool:
        """Whether real values are too odd a number for pairs: each is complex, then."""
        return self.kind != "complex" and bool(self.length % 2)

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
        return 2 * (self.length // 2 + 1) if self.kind != real else self.length


def recognized(matrix: NDArray[Any], digit: float = 0.0) -> Transform | None:
    """The transform that a matrix is, times a number.

    Parameters
    ----------
    matrix : ndarray
        Numbers in by numbers out.
    digit : float
        Up to which share of itself each number was rounded, where that is more than float32's.

    Returns
    -------
    Transform or None
        None where it is none, or one of a length that has a very large prime factor.

    Examples
    --------
    >>> matrix = transform_matrix(8, 5)[:, :1].reshape(8, 10)
    >>> recognized(matrix * 0.5).kind
    'from_real'
    >>> recognized(np.ones((8, 10))) is None
    True
    """
    rows, columns = matrix.shape
    if min(rows, columns) < 8:
        return None
    # The first row goes to all frequencies alike, or comes from the first of them.
    scale = float(matrix[0, 0])
    first = matrix[0] - scale * (np.arange(columns) % 2 == 0)
    near = (_NEAR + 2 * digit) * abs(scale)
    even = np.abs(first).max() <= near
    flat = np.abs(matrix[0] - scale).max() <= near
    if not scale or not (even or flat):
        return None if digit else _windowed(matrix)
    for kind, inverse in _candidates(rows, columns, flat=flat):
        lengths: dict[Kind, int] = {"complex": columns // 2, "from_real": rows, "to_real": columns}
        length = lengths[kind]
        found = Transform(kind, length, inverse, scale)
        if not factors(found.points):
            continue
        if not digit and _same(matrix, found):
            return found
        if digit and (exact := _unrounded(matrix, found, digit)) is not None:
            return exact
    return None


def _windowed(matrix: NDArray[Any]) -> Transform | None:
    """Back to real values, each of which is multiplied by a number: windows that are added up."""
    rows, columns = matrix.shape
    # The first row goes to all values alike.
    scale = float(np.abs(matrix[0]).max())
    if rows != 2 * (columns // 2 + 1) or not scale or not np.isfinite(matrix).all():
        return None
    window = tuple(float(weight) for weight in matrix[0] / scale)
    found = Transform("to_real", columns, True, scale, window)
    return found if factors(found.points) and _same(matrix, found) else None


def _candidates(rows: int, columns: int, *, flat: bool) -> list[tuple[Kind, bool]]:
    if flat:
        return [("to_real", True)] if rows == 2 * (columns // 2 + 1) else []
    if rows == columns and not rows % 2:
        return [("complex", False), ("complex", True)]
    return [("from_real", False)] if columns == 2 * (rows // 2 + 1) else []


def _unrounded(matrix: NDArray[Any], found: Transform, digit: float) -> Transform | None:
    """With the number that the matrix was multiplied by before it was rounded."""
    wanted = _matrix_of(found) * np.sign(found.scale)
    # The smallest numbers of float16 are all as far apart.
    lost = _SMALLEST_HALF / 2 + _NEAR * abs(found.scale)
    large = np.abs(wanted) > _LARGE
    sizes, given = np.abs(wanted[large]), np.abs(matrix[large])
    # Each number says between which two it was.
    least = ((given - lost) / (sizes * (1 + digit))).max()
    most = ((given + lost) / (sizes * (1 - digit))).min()
    usual = (1.0, found.length**-0.5, 1.0 / found.length)
    scale = next((each for each in usual if least <= each <= most), (least + most) / 2)
    near = np.abs(matrix - scale * wanted) <= 1.05 * digit * scale * np.abs(wanted) + lost
    if least > most or not near.all():
        return None
    return replace(found, scale=float(scale * np.sign(found.scale)))


def _same(matrix: NDArray[Any], found: Transform) -> bool:
    wanted = _matrix_of(found)
    if found.window:
        wanted = wanted * np.array(found.window)
    return bool(np.abs(matrix - found.scale * wanted).max() <= 4 * _NEAR * abs(found.scale))


def _matrix_of(found: Transform) -> NDArray[Any]:
    real_back = found.kind == "to_real"
    bins = found.length if found.kind == "complex" else found.length // 2 + 1
    whole = transform_matrix(found.length, bins, inverse=found.inverse, real_back=real_back)
    parts = whole[:, :1] if found.kind == "from_real" else whole
    whole = parts.reshape(found.rows, found.columns) * (found.length if found.inverse else 1)
    return whole


def factors(points: int) -> tuple[int, ...]:
    """The factors of a length, from that of the first step on; none of a length with a huge one.

    Parameters
    ----------
    points : int
        The length.

    Returns
    -------
    tuple of int
        The small ones first, each of which is written out.

    Examples
    --------
    >>> factors(200), factors(1025), factors(2 * 2003)
    ((4, 5, 5, 2), (5, 5, 41), ())
    """
    found = list[int]()
    for radix in _RADICES:
        while points % radix == 0:
            points //= radix
            found.append(radix)
    radix = WRITTEN_OUT + 2
    while points > 1 and radix <= LARGEST:
        while points % radix == 0:
            points //= radix
            found.append(radix)
        radix += 2
    return tuple(found) if points == 1 else ()
