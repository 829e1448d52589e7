"""Confidence intervals of a median, by order statistics: exact for whatever distribution.

Times of a machine are neither normal nor symmetric, and a few rounds may be far out. Between the
k-th smallest and the k-th largest of n values lies the median with a probability that follows from
the binomial distribution alone (W. J. Conover, Practical Nonparametric Statistics, 3.2). It is the
sign test turned round: an interval that excludes 1 is a sign test that rejects.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median, and what it lies between.

    Attributes
    ----------
    estimate : float
        The median of the values.
    low, high : float
        The interval; infinite where the values are too few for the confidence that was asked for.
    n : int
        How many values there were.

    Examples
    --------
    >>> Interval(1.003, 0.998, 1.006, n=12).within(0.99, 1.01)
    True
    """

    estimate: float
    low: float
    high: float
    n: int

    def within(self, low: float, high: float) -> bool:
        """Whether all of it lies between two values.

        Parameters
        ----------
        low, high : float
            The values.

        Returns
        -------
        bool
            True when an end lies on a bound, too.
        """
        return low <= self.low and self.high <= high


def median_interval(values: Sequence[float], confidence: float) -> Interval:
    """The interval of a median that holds it with at least this probability.

    Parameters
    ----------
    values : sequence of float
        At least one; independent, of one distribution.
    confidence : float
        Between 0 and 1. Eight values are the fewest for 0.99, five for 0.9.

    Returns
    -------
    Interval
        Its ends are infinite where there are too few values for that probability.

    Raises
    ------
    ValueError
        When there are no values.

    Examples
    --------
    >>> median_interval([1.02, 1.05, 1.03, 1.04, 1.06, 1.01, 1.04, 1.03, 1.04], 0.99)
    Interval(estimate=1.04, low=1.01, high=1.06, n=9)
    >>> median_interval([1.02, 1.05], 0.99).low
    -inf
    """
    if not values:
        raise ValueError("an interval of no values")
    ordered, n = sorted(values), len(values)
    rank = _rank(n, (1.0 - confidence) / 2)
    low, high = (ordered[rank - 1], ordered[n - rank]) if rank else (-math.inf, math.inf)
    return Interval(statistics.median(ordered), low, high, n)


def _rank(n: int, tail: float) -> int:
    """The largest k for which fewer than k of n values below the median is rarer than the tail."""
    probability, rank = 0.0, 0
    while rank < n:
        probability += math.comb(n, rank) / 2**n
        if probability > tail:
            break
        rank += 1
    return rank
