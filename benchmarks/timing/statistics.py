"""Medians, spreads and ratios of interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.engines.base import Array


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles, over ``n`` rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value per round; at least one."""
        lower, middle, upper = np.percentile(np.asarray(values, np.float64), [25, 50, 75])
        return cls(float(middle), float(lower), float(upper), len(values))


def ratio_spread(times: Sequence[float], reference: Sequence[float]) -> Spread:
    """Of the ratios of two engines, round by round.

    A machine's speed drifts by more than engines differ; within one round both saw nearly the same
    machine, so the ratio is taken there and the median over the rounds.

    Raises
    ------
    ValueError
        When the two were not run in the same rounds.
    """
    return Spread.of([a / b for a, b in zip(times, reference, strict=True)])


def max_relative_difference(outputs: Sequence[Array], reference: Sequence[Array]) -> float:
    """Largest difference of any output value, relative to the largest value of that output.

    Raises
    ------
    ValueError
        When number or shapes of the outputs differ, or a value is not finite.
    """
    if [o.shape for o in outputs] != [r.shape for r in reference]:
        raise ValueError(
            f"output shapes {[o.shape for o in outputs]} are not {[r.shape for r in reference]}"
        )
    worst = 0.0
    for mine, theirs in zip(outputs, reference, strict=True):
        if not np.isfinite(mine).all():
            raise ValueError("an output holds values that are not finite")
        difference = np.abs(mine.astype(np.float64) - theirs).max()
        worst = max(worst, float(difference / np.abs(theirs).max()))
    return worst


def rms_relative_difference(outputs: Sequence[Array], reference: Sequence[Array]) -> float:
    """Root mean square of the difference over that of the reference, of the worst output.

    Infinite where infinities, or what is not a number, do not stand in the same places.
    """
    worst = 0.0
    for mine, theirs in zip(outputs, reference, strict=True):
        got, wide = mine.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(wide)
        # ``max`` keeps its first operand beside one that is not a number.
        if not np.array_equal(got[~finite], wide[~finite], equal_nan=True):
            return float("inf")
        if not np.isfinite(got[finite]).all():
            return float("inf")
        if finite.any():
            gap, size = got[finite] - wide[finite], wide[finite]
            scale = max(float(np.sqrt(np.mean(size**2))), 1e-300)
            worst = max(worst, float(np.sqrt(np.mean(gap**2))) / scale)
    return worst
