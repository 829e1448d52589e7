"""At what speeds a machine timed candidates one by one, told by some that are timed again.

A machine that others share becomes slower or faster for minutes, and what was timed before that
does not compare with what was timed after. Those that were timed both ways, alone and later
together, tell: where all of a stretch take another share of their times alone than those of the
next one do, the machine had another speed in it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_FEWEST = 5
"""Of a stretch: fewer cannot differ from the rest by more than chance."""

_SURE = 3.3
"""Standard deviations of Mann and Whitney's U, of two samples of one distribution: by chance it is
so far off once in a thousand, and many borders are looked at."""

_NOTICED = 1.15
"""Speeds nearer to each other are one: on a real machine backends' times together lie 1.01 to 1.06
times as high as alone, in the median, and what is a tenth off is a rival anyway."""

_EVEN = 1.2
"""So near to the median of its stretch are"""

_MOST = 0.8
"""most of it, or else no speed of a stretch explains them: another program took the cores now and
then, and what was timed in between would be levelled wrongly."""

_ENDLESS = 2**63


@dataclass(frozen=True)
class Stretch:
    """A part of the order in which candidates were timed.

    Attributes
    ----------
    level : float
        What times alone of it are to be multiplied by.
    end : int
        The first place after it.

    Examples
    --------
    >>> Stretch(level=0.7, end=120).level
    0.7
    """

    level: float
    end: int = _ENDLESS


def stretches(points: Sequence[tuple[int, float]]) -> tuple[Stretch, ...]:
    """Stretches whose levels differ by more than chance.

    Parameters
    ----------
    points : sequence of (int, float)
        A place in the order, and the time together over the time alone; at least one.

    Returns
    -------
    tuple of Stretch
        In order; one alone, where the machine's speed did not change, or changed too often to be
        told.

    Examples
    --------
    >>> stretches([(n, 0.7 if n < 10 else 1.0) for n in range(30)])[0]
    Stretch(level=0.7, end=10)
    >>> len(stretches([(n, 1.0 + 0.1 * (n % 3)) for n in range(30)]))
    1
    >>> len(stretches([(n, 0.5 if 10 < n < 20 or n > 25 else 1.0) for n in range(30)]))
    1
    """
    ordered = sorted(points)
    borders = _borders(ordered)
    parts = list(itertools.pairwise([0, *borders, len(ordered)]))
    ratios = [[ratio for _, ratio in ordered[a:b]] for a, b in parts]
    if not all(map(_is_even, ratios)):
        borders, ratios = [], [[ratio for _, ratio in ordered]]
    levels = list(map(statistics.median, ratios))
    ends = [*(ordered[border][0] for border in borders), _ENDLESS]
    return tuple(map(Stretch, levels, ends))


def _is_even(ratios: Sequence[float]) -> bool:
    """Whether most of a stretch have one speed."""
    middle = statistics.median(ratios)
    near = sum(middle / _EVEN <= ratio <= middle * _EVEN for ratio in ratios)
    return near >= _MOST * len(ratios)


def _borders(points: Sequence[tuple[int, float]]) -> list[int]:
    """Where stretches begin: binary segmentation, by medians."""
    logs = [math.log(ratio) for _, ratio in points]
    fitting = [
        place
        for place in range(_FEWEST, len(logs) - _FEWEST + 1)
        if points[place - 1][0] < points[place][0] and _differ(logs[:place], logs[place:])
    ]
    if not fitting:
        return []
    best = min(fitting, key=lambda place: _deviation(logs[:place]) + _deviation(logs[place:]))
    later = [best + border for border in _borders(points[best:])]
    return [*_borders(points[:best]), best, *later]


def _deviation(values: Sequence[float]) -> float:
    middle = statistics.median(values)
    return math.fsum(abs(value - middle) for value in values)


def _differ(left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether the ranks of two samples differ, whatever a few of them are."""
    if abs(statistics.median(left) - statistics.median(right)) < math.log(_NOTICED):
        return False
    pairs = len(left) * len(right)
    above = sum((a > b) + (a == b) / 2 for a in left for b in right)
    return abs(above - pairs / 2) >= _SURE * math.sqrt(pairs * (len(left) + len(right) + 1) / 12)
