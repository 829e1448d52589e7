"""Matrices of constants of whose rows each is made of few neighbours: what resizes images with a
filter, blurs them, or gathers bands of a spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SPARSE, _MOST_TAPS = 6, 32
"""One in so many elements may be in the band, and so many of each row."""


@dataclass(frozen=True)
class Band:
    """What is left of a matrix without its zeros.

    Attributes
    ----------
    firsts : ndarray
        Of each row the first of its neighbours, all of which are inside.
    weights : ndarray
        (neighbours, rows), zero where a row has fewer.
    """

    firsts: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def taps(self) -> int:
        """Neighbours of each row."""
        return len(self.weights)


def band_of(matrix: NDArray[Any]) -> Band | None:
    """The neighbours of which each row is made; None where they are too many.

    Parameters
    ----------
    matrix : ndarray
        (results, elements).

    Returns
    -------
    Band or None
        What is neither zero nor far apart.

    Examples
    --------
    >>> few = np.eye(24, dtype=np.float32)[::2]
    >>> found = band_of(few + np.eye(24, k=1, dtype=np.float32)[::2])
    >>> found.firsts[:3].tolist(), found.taps
    ([0, 2, 4], 2)
    """
    after, before = matrix.shape
    held = matrix != 0
    firsts = np.where(held.any(1), held.argmax(1), 0)
    lasts = np.where(held.any(1), before - 1 - held[:, ::-1].argmax(1), 0)
    taps = int((lasts - firsts).max()) + 1
    if taps > _MOST_TAPS or taps * _SPARSE > before or not np.isfinite(matrix).all():
        return None
    firsts = np.minimum(firsts, before - taps)
    weights = matrix[np.arange(after), firsts + np.arange(taps)[:, None]]
    return Band(firsts.astype(np.int32), weights.astype(np.float32))
