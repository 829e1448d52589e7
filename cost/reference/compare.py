"""How far two outputs are apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEFAULT_RTOL = 1e-3
"""Tolerance for float32, relative to the largest absolute value of the expected output."""


def largest_error(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """The largest difference, relative to the largest absolute finite value expected.

    Parameters
    ----------
    actual, expected : ndarray
        Of any dtype; integers and booleans must agree exactly.

    Returns
    -------
    float
        0.0 for equal arrays; ``inf`` when the shapes, the dtypes or the places of infinities and
        NaNs differ, or when integers differ at all.

    Examples
    --------
    >>> expected = np.array([1.0, -4.0], np.float32)
    >>> largest_error(expected + np.float32(0.5), expected)
    0.125
    >>> largest_error(np.array([1, 2]), np.array([1, 3]))
    inf
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return math.inf
    if expected.size == 0:
        return 0.0
    if not _is_float(expected):
        return 0.0 if np.array_equal(actual, expected) else math.inf
    # Half-precision dtypes (bfloat16 among them) have no ufuncs of their own everywhere; float32
    # tells their values apart, and takes half of the memory of float64.
    wide = np.dtype(np.float32 if expected.dtype.itemsize < 4 else np.float64)
    a: NDArray[Any] = actual.astype(wide)
    b: NDArray[Any] = expected.astype(wide)
    finite = np.isfinite(b)
    if not finite.all():
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        a, b = a[finite], b[finite]
        if b.size == 0:
            return 0.0
    if not np.isfinite(a).all():
        return math.inf
    difference = float(np.max(np.abs(a - b)))
    scale = float(np.max(np.abs(b)))
    if difference == 0.0:
        return 0.0
    return difference / scale if scale > 0.0 else math.inf


def _is_float(array: NDArray[np.generic]) -> bool:
    return array.dtype.kind not in "biu"
