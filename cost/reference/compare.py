"""How far two outputs are apart, and how far they may be.

A result is compared with what was meant in two ways: by its largest error, relative to the largest
value, which finds a single wrong element; and by the root mean square of its errors, relative to
that of the values, which finds what is a little wrong everywhere. Neither may be much more than
what rounding each operator's result to its element type does on the very same inputs, which is a
:class:`Noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collage.cost.reference.rounding import EPSILON

DEFAULT_RTOL = 1e-3
"""For float32, relative to the largest value: what another order of summation, Winograd-like
algorithms and approximations of elementary functions come to, and wrong results do not."""


@dataclass(frozen=True)
class Distance:
    """How far an output is from another.

    Attributes
    ----------
    largest : float
        The largest difference, relative to the largest absolute value expected.
    rms : float
        The root mean square of the differences, relative to that of the values expected.

    Examples
    --------
    >>> Distance(largest=0.125, rms=0.1).fits(Distance(largest=0.2, rms=0.05))
    False
    """

    largest: float
    rms: float

    def fits(self, bound: Distance) -> bool:
        """Whether neither is beyond a bound; what is not a number is."""
        return self.largest <= bound.largest and self.rms <= bound.rms


FAR = Distance(math.inf, math.inf)
"""Of outputs that do not compare: of other shapes or types, or not a number elsewhere."""


@dataclass(frozen=True)
class Noise(Distance):
    """What rounding alone does to an output.

    Attributes
    ----------
    form : str
        The format with the fewest digits among those that intermediate results are kept in, a key
        of :data:`collage.cost.reference.rounding.EPSILON`; empty where results are exact.
    size : int
        Elements of the output.
    overflow : float
        The share of elements that are no number once every result is rounded; the distances are
        those of the others.

    Examples
    --------
    Where rounding does nothing, or nobody knows what it does, a result may still be off by a little
    more than its last digit:

    >>> Noise(0.0, 0.0, "float16", 1000).bound()
    Distance(largest=0.00390625, rms=0.001953125)
    """

    form: str
    size: int
    overflow: float = 0.0

    @property
    def is_chaotic(self) -> bool:
        """Whether rounding changes the output so much that it says little about correctness."""
        return not self.rms <= CHAOS

    def bound(self) -> Distance:
        """The largest distance of a right result.

        A noise of zero bounds integers by equality, floats by :data:`FLOORS`.
        """
        few = self.size < FEW
        factor = RMS_FACTOR_FEW if few else RMS_FACTOR
        floor = FLOORS.get(self.form, 0.0)
        if not self.form:
            spare = 1.0 / self.size if self.rms > 0.0 else 0.0
            share = min(RMS_LIMIT, factor * self.rms + spare)
            return Distance(share, share)
        return Distance(
            min(LARGEST_LIMIT, LARGEST_FACTOR * factor * self.largest + floor),
            min(RMS_LIMIT, factor * self.rms + floor / 2),
        )


RMS_FACTOR, RMS_FACTOR_FEW = 2.0, 3.0
"""How much further than rounding each result a right program may be off, as PyTorch's accuracy
check has it: by root mean square, and that of few elements."""

FEW = 1000
"""Outputs of less elements are few."""

LARGEST_FACTOR = 2.0
"""How much more that may be by the largest error, which is of one element."""

RMS_LIMIT, LARGEST_LIMIT = 0.5, 0.9
"""However chaotic: zeros are off by 1, something else of the same size by 1.4."""

CHAOS = 0.1
"""Root mean square of rounding's errors from which on a network is called chaotic."""

FLOORS = {
    "float64": DEFAULT_RTOL,
    "float32": DEFAULT_RTOL,
    **{form: 4 * EPSILON[form] for form in ("tf32", "float16", "bfloat16")},
}
"""What the largest error may be besides, and half of it by root mean square: four units in the last
place for few digits, approximations for many."""


def noise_of(rounded: NDArray[np.generic], expected: NDArray[np.generic], form: str) -> Noise:
    """What rounding did to an output.

    Parameters
    ----------
    rounded, expected : ndarray
        With each operator's result rounded, and as it was meant.
    form : str
        The format with the fewest digits among those that results are kept in.

    Returns
    -------
    Noise
        Relative to the largest value expected; values that overflowed count apart, as a share.
    """
    if expected.dtype.kind in "biu":
        apart = distance(rounded, expected)
        return Noise(apart.largest, apart.rms, "", expected.size)
    number = np.isfinite(expected)
    lost = number & ~np.isfinite(rounded)
    if lost.any():
        expected, rounded = expected[~lost], rounded[~lost]
    apart = distance(rounded, expected)
    if apart == FAR:
        apart = Distance(0.0, 0.0)  # Numbers where none were meant: whoever computes is as free.
    size = number.size
    return Noise(apart.largest, apart.rms, form, size, float(lost.mean()) if size else 0.0)


def distance(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> Distance:
    """How far an output is from what was expected.

    Parameters
    ----------
    actual, expected : ndarray
        Of any dtype; of integers and booleans, the share that differs is both distances.

    Returns
    -------
    Distance
        Infinite when the shapes, the dtypes or the places of infinities and NaNs differ.

    Examples
    --------
    >>> expected = np.array([1.0, -4.0], np.float32)
    >>> distance(expected + np.float32(0.5), expected).largest
    0.125
    >>> distance(np.array([1, 2]), np.array([1, 3]))
    Distance(largest=0.5, rms=0.5)
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return FAR
    if expected.size == 0:
        return Distance(0.0, 0.0)
    if expected.dtype.kind in "biu":
        share = float(np.mean(actual != expected))
        return Distance(share, share)
    # Half-precision dtypes (bfloat16 among them) have no ufuncs of their own everywhere; float32
    # tells their values apart, and takes half of the memory of float64.
    wide = np.dtype(np.float32 if expected.dtype.itemsize < 4 else np.float64)
    a: NDArray[Any] = actual.astype(wide)
    b: NDArray[Any] = expected.astype(wide)
    finite = np.isfinite(b)
    if not finite.all():
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return FAR
        a, b = a[finite], b[finite]
        if b.size == 0:
            return Distance(0.0, 0.0)
    if not np.isfinite(a).all():
        return FAR
    difference = a - b
    return Distance(
        _quotient(float(np.max(np.abs(difference))), float(np.max(np.abs(b)))),
        _quotient(_rms(difference), _rms(b)),
    )


def tolerance_key() -> str:
    """What a verdict depends on besides the data, for the keys of measurements."""
    factors = f"{RMS_FACTOR:g} {RMS_FACTOR_FEW:g} {LARGEST_FACTOR:g} of rounding"
    return f"{factors}, {RMS_LIMIT:g} {LARGEST_LIMIT:g} at most, {DEFAULT_RTOL:g} at least"


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
    largest = distance(actual, expected).largest
    return math.inf if largest and expected.dtype.kind in "biu" else largest


def _rms(values: NDArray[Any]) -> float:
    # Scaled, so that squares of large and of tiny values stay numbers.
    scale = float(np.max(np.abs(values)))
    if scale == 0.0:
        return 0.0
    flat = (values / scale).reshape(-1)
    return scale * math.sqrt(float(np.mean(flat * flat, dtype=np.float64)))


def _quotient(difference: float, scale: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / scale if scale > 0.0 else math.inf
