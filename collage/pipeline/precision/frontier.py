"""The fastest partitioning for each error, by a multiplier on the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.priced_costs import PricedCosts
from collage.search.costs import CandidateCosts
from collage.search.partitioning import Partitioning

_HALVINGS = 8
"""Steps of the search for a multiplier: the error it leads to is met to about a twentieth."""

_SHARES = (1.0, 0.5, 0.25, 0.125)
"""Of the allowed error, for which partitionings are looked for: where the model is too hopeful, the
measured error rules the first ones out, and one of the others is the answer."""


@dataclass(frozen=True)
class Point:
    """A partitioning that is the fastest for its error, by sums of parts.

    Attributes
    ----------
    partitioning : Partitioning
        What it is; its cost is in seconds.
    error : float
        Predicted.
    limit : float
        The error that was to be kept.
    """

    partitioning: Partitioning
    error: float
    limit: float


def frontier(
    cheapest: Callable[[CandidateCosts], Partitioning | None],
    costs: CandidateCosts,
    errors: ErrorModel,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Point]:
    """The fastest partitionings that keep to the allowed error and to parts of it.

    Each minimizes time plus a multiplier times the squared error, exactly; the least multiplier
    that keeps to an error is found by halving on a logarithmic scale (Everett 1963). Partitionings
    that no multiplier leads to, in the dents of the frontier, are not found.

    Parameters
    ----------
    cheapest : callable
        The cheapest partitioning for costs; None when there was no time.
    costs : CandidateCosts
        Seconds.
    errors : ErrorModel
        What errors candidates bring.
    should_stop : callable, optional
        Asked before each search.

    Returns
    -------
    list of Point
        Distinct ones, those with the largest allowed error first; the last is exact.
    """
    found: list[Point] = []

    def point(multiplier: float, limit: float) -> Point | None:
        if should_stop():
            return None
        partitioning = cheapest(PricedCosts(costs, errors.squared, multiplier))
        if partitioning is None:
            return None
        return Point(partitioning, errors.error(partitioning.candidates), limit)

    free = point(0.0, math.inf)
    if free is None:
        return []
    for limit in (share * errors.max_error for share in _SHARES):
        best = free if free.error <= limit else _kept(point, limit, free)
        if best is not None:
            found.append(Point(best.partitioning, best.error, limit))
    exact = point(math.inf, 0.0)
    if exact is not None:
        found.append(exact)
    distinct = {one.partitioning.key(): one for one in reversed(found)}
    return [one for one in found if distinct.pop(one.partitioning.key(), None) is not None]


def _kept(point: Callable[[float, float], Point | None], limit: float, free: Point) -> Point | None:
    """The fastest found whose error is within a limit."""
    # A second for the whole limit is more than any partitioning saves.
    low, high = 1e-9 / free.error**2, 1.0 / limit**2
    best = point(high, limit)
    for _ in range(_HALVINGS):
        if best is None:
            return None
        middle = math.sqrt(low * high)
        one = point(middle, limit)
        if one is None:
            return best if best.error <= limit else None
        if one.error <= limit:
            best, high = one, middle
        else:
            low = middle
    return best if best is not None and best.error <= limit else None
