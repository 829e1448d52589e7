"""Fourier transforms of a fixed length as products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 8192
"""A matrix of twice as many rows and columns in float32 would take 1 GiB."""


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
    angle = 2 * np.pi * np.arange(length) / length
    place = np.outer(np.arange(rows), np.arange(columns)) % length
    cosine, sine = np.cos(angle)[place], np.sin(angle)[place]
    if inverse:
        cosine, sine = cosine / length, -sine / length
    matrix: NDArray[Any] = np.zeros((rows, 2, columns, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, -sine
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sine, cosine
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
