"""Random data that stands for a model's weights and inputs when a workload is measured.

Layers that differ only in their weights are one workload, so a measuring worker never sees the real
ones. It regenerates data of the same sign and scale instead: magnitudes decide whether sums
cancel, whether activations saturate and whether roots and logarithms are defined.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import ir

from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.tensor_spec import TensorSpec

_BLOCK = 1_048_573
"""Elements drawn at random; larger arrays repeat them. A prime, so no two rows are alike."""

_SAMPLE = 1 << 16
"""Elements that mean and deviation are taken from."""

_MOST_STEPS = 127
"""Of a signed byte whose range is even."""

_ROUNDED = 1e-3
"""Of a step, that rounding to float32 may put an element off."""

_ROWS, _OF_A_ROW = 8, 64
"""Rows, and elements of each, that tell whether weights are bytes times a step."""


@dataclass(frozen=True)
class DataSpec(TensorSpec):
    """A tensor and how its elements are distributed.

    Attributes
    ----------
    low, high : int or float
        Smallest and largest finite element; both included. Integers stay what they are: those of
        64 bits have more digits than a float.
    mean, deviation : float
        Of the elements. A deviation of infinity stands for evenly spread between ``low`` and
        ``high``, as integers are.
    whole : bool
        Floats that are whole multiples of a step, in each row at most 127 or 128 of them: the
        weights of a quantized model, which backends take for bytes.

    Examples
    --------
    >>> weights = np.linspace(-1.0, 1.0, 1000, dtype=np.float32).reshape(10, 100)
    >>> spec = DataSpec.measure(weights)
    >>> spec.low, spec.high, spec.generate(seed=0).shape
    (-1.0, 1.0, (10, 100))
    """

    low: int | float
    high: int | float
    mean: float = 0.0
    deviation: float = math.inf
    whole: bool = False

    @classmethod
    def measure(cls, array: NDArray[np.generic]) -> DataSpec:
        """Describe an existing array."""
        shape, dtype = array.shape, array.dtype.name
        if not array.size:
            return cls(shape, dtype, 0, 0)
        if array.dtype.kind in "biu":
            return cls(shape, dtype, int(array.min()), int(array.max()))
        flat = array.reshape(-1)
        low, high = _extremes(flat)
        sample = flat[:: max(1, flat.size // _SAMPLE)].astype(np.float64)
        if not (math.isfinite(low) and math.isfinite(high)):
            # Masks hold infinities: keep the finite range, or the largest finite number's side.
            finite = flat[np.isfinite(flat)]
            low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
            sample = sample[np.isfinite(sample)]
        mean = float(sample.mean()) if sample.size else 0.0
        deviation = float(sample.std()) if sample.size else 0.0
        return cls(shape, dtype, low, high, mean, deviation, _is_whole(array))

    @property
    def range_key(self) -> str:
        """What of the distribution tells workloads apart: the range of integers (an index must
        stay valid); of floats, whether they are bytes times a step."""
        if self.is_integer:
            return f"{self}[{self.low:.0f},{self.high:.0f}]"
        return f"{self}[bytes]" if self.whole else str(self)

    def generate(self, seed: int) -> NDArray[np.generic]:
        """Seeded data of this distribution, the same in every process."""
        rng = np.random.default_rng(seed)
        count = min(self.size, _BLOCK)
        block: NDArray[np.generic]
        if self.is_integer:
            block = rng.integers(int(self.low), int(self.high), count, np.int64, endpoint=True)
        elif math.isinf(self.deviation):
            block = rng.uniform(self.low, self.high, count)
        elif self.whole:
            step = max(abs(self.low), abs(self.high)) / _MOST_STEPS
            block = rng.integers(-_MOST_STEPS, _MOST_STEPS, count, endpoint=True) * step
        else:
            block = _normal(rng, count) * np.float32(self.deviation)
            block += np.float32(self.mean)
            np.clip(block, self.low, self.high, out=block)
        return np.resize(block.astype(self.dtype, copy=False), self.shape)


def _normal(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Normally distributed elements, at most a block of them; of large arrays a piece of one block
    that is drawn once in a process, from a place that is drawn."""
    if count < _SAMPLE:
        return rng.standard_normal(count, np.float32)
    block, begin = _normal_block(), int(rng.integers(_BLOCK))
    return np.concatenate([block[begin : begin + count], block[: max(0, begin + count - _BLOCK)]])


@functools.cache
def _normal_block() -> NDArray[np.float32]:
    return np.random.default_rng(_BLOCK).standard_normal(_BLOCK, np.float32)


def _is_whole(array: NDArray[np.generic]) -> bool:
    """Whether the elements of each row are signed bytes times a step; rows may have several."""
    if array.dtype != np.float32 or array.ndim < 2 or not array.size:
        return False
    rows = array.reshape(len(array), -1)[:: max(1, len(array) // _ROWS)].astype(np.float64)
    largest = np.abs(rows).max(1)
    if not np.isfinite(largest).all():
        return False
    rows, largest = rows[largest > 0], largest[largest > 0]
    few = rows[:, :: max(1, rows.shape[1] // _OF_A_ROW)]
    # The largest one is 127 steps with most quantizers, and may be any number of them.
    steps = np.array([127, 128, *range(126, 1, -1)]) / largest[:, None]
    apart = np.abs(few[:, None] * steps[:, :, None] - np.rint(few[:, None] * steps[:, :, None]))
    # All zeros and signs are no quantizer's: anything is a multiple of its only value.
    several = len(np.unique(np.abs(few))) > 3
    return several and bool((apart.max(2) < _ROUNDED).any(1).all())


def data_spec(constant: ir.GenericConst, known: dict[ir.GenericConst, DataSpec]) -> DataSpec:
    """How the elements of a constant are distributed.

    Parameters
    ----------
    constant : GenericConst
        Each is gone through only once.
    known : dict
        Descriptions from earlier calls; gets a new one.

    Returns
    -------
    DataSpec
        Measured once for each constant; ``known`` remembers it.
    """
    if constant not in known:
        known[constant] = DataSpec.measure(constant_data(constant))
    return known[constant]


def _extremes(flat: NDArray[np.generic]) -> tuple[float, float]:
    """The smallest and the largest element; not finite when one of them is not a number."""
    if flat.dtype.itemsize >= np.dtype(np.float32).itemsize:
        return float(np.min(flat)), float(np.max(flat))
    # numpy compares half precision one by one, converting each; blocks keep the copy in the cache.
    blocks = (
        flat[begin : begin + _SAMPLE].astype(np.float32) for begin in range(0, flat.size, _SAMPLE)
    )
    extremes = np.array([(np.min(block), np.max(block)) for block in blocks])
    return float(np.min(extremes[:, 0])), float(np.max(extremes[:, 1]))


def input_spec(spec: TensorSpec, index_bound: int | None, *, positive: bool = False) -> DataSpec:
    """How an activation is made up.

    Parameters
    ----------
    spec : TensorSpec
        Shape and dtype.
    index_bound : int or None
        For integers that select elements, the size of the axis.
    positive : bool
        Floats in [0.1, 1] instead of normally distributed ones, for functions that are undefined
        below zero.

    Returns
    -------
    DataSpec
        Normally distributed floats within ±8, unless ``positive``; whole numbers from 0 on.
    """
    if spec.is_integer:
        return DataSpec(spec.shape, spec.dtype, 0, 1 if index_bound is None else index_bound - 1)
    if positive:
        return DataSpec(spec.shape, spec.dtype, 0.1, 1.0)
    return DataSpec(spec.shape, spec.dtype, -8.0, 8.0, 0.0, 1.0)
