"""Fourier transforms of a fixed length as products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 8192
"""A matrix of twice as many rows and columns in float32 would take 1 GiB."""


def roots_of_unity(length: int, *, inverse: bool = True) -> NDArray[np.complex128]:
    """What a transform multiplies by: turns by parts of a whole one.

    Quarters of a turn are exact. With a sine of 1e-16 where there is 0, the bins of real values
    that are real would have one, and their phases would turn on its sign.

    Parameters
    ----------
    length : int
        How many turns there are.
    inverse : bool
        Whether they go forward.

    Returns
    -------
    ndarray
        From no turn on.

    Examples
    --------
    >>> [complex(turn) for turn in roots_of_unity(4)]
    [(1+0j), 1j, (-1+0j), -1j]
    """
    turns = np.exp(2j * np.pi * np.arange(length) / length)
    quarters = [k * length // 4 for k in range(4) if k * length % 4 == 0]
    turns[quarters] = np.round(turns[quarters])
    # Zeros that are added up are to have no sign.
    found: NDArray[np.complex128] = (turns if inverse else turns.conj()) + (0.0 + 0.0j)
    return found


def transform_matrix(
    length: int, bins: int, *, inverse: bool = False, real_back: bool = False
) -> NDArray[np.float64]:
    """The transform of rows (real and imaginary part by turns) as a matrix.

    Parameters
    ----------
    length : int
        Of the transform.
    bins : int
        How many frequencies there are, from 0 on: all, or those up to half of the length.
    inverse : bool
        Back from frequencies, divided by the length.
    real_back : bool
        Whether what comes out of the inverse is real, and half of the frequencies go in.

    Returns
    -------
    ndarray
        (place in, part in, place out, part out); with ``real_back`` one part comes out.

    Examples
    --------
    The second of four frequencies takes real values with the weights 1, -i, -1 and i:

    >>> weights = transform_matrix(4, 3)[:, 0, 1]
    >>> weights[:, 0].round().astype(int).tolist(), weights[:, 1].round().astype(int).tolist()
    ([1, 0, -1, 0], [0, -1, 0, 1])
    """
    rows, columns = (bins, length) if real_back else (length, bins)
    # No more angles differ than the length has places.
    turns = roots_of_unity(length)
    place = np.outer(np.arange(rows), np.arange(columns)) % length
    cosine, sine = turns.real[place], turns.imag[place]
    if inverse:
        cosine, sine = cosine / length, -sine / length
    matrix: NDArray[Any] = np.zeros((rows, 2, columns, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, -sine
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sine, cosine
    matrix += 0.0  # No zero is negative.
    if not real_back:
        return matrix
    # What is left out are the conjugates of all bins but the first and, of an even length, the
    # last.
    weights = np.full(rows, 2.0)
    weights[0] = 1.0
    if length % 2 == 0:
        weights[length // 2] = 1.0
    whole: NDArray[Any] = (matrix * weights[:, None, None, None])[..., :1]
    return whole
