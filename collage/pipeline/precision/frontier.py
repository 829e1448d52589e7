"""The fastest partitioning for each error, by a multiplier on the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.priced_costs import PricedCosts
from collage.search.costs import CandidateCosts
from collage.search.partitioning import Partitioning

_CLOSE = 1.002
"""Multipliers this near to each other count as one. Layers of one shape differ by little in what
they do to the error: the finer the steps, the fewer of them change at once."""

_SHARES = (1.0, 0.8, 0.5, 0.25)
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
    """

    partitioning: Partitioning
    error: float


def frontier(
    cheapest: Callable[[CandidateCosts], Partitioning | None],
    costs: CandidateCosts,
    errors: ErrorModel,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Point]:
    """The fastest partitionings that keep to the allowed error and to parts of it.

    Each minimizes time plus a multiplier times the squared error, exactly; the least multiplier
    that keeps to an error is found by halving on a logarithmic scale (Everett, "Generalized
    Lagrange multiplier method", Operations Research 11, 1963). Partitionings that no multiplier
    leads to, in the dents of the frontier, are not found.

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
    by_multiplier: dict[float, Point] = {}

    def point(multiplier: float) -> Point | None:
        if multiplier not in by_multiplier and not should_stop():
            partitioning = cheapest(PricedCosts(costs, errors.squared, multiplier))
            if partitioning is not None:
                error = errors.error(partitioning.candidates)
                by_multiplier[multiplier] = Point(partitioning, error)
        return by_multiplier.get(multiplier)

    found: list[Point] = []
    for limit in (share * errors.max_error for share in _SHARES):
        kept = _kept(point, limit)
        if kept is not None:
            found.append(kept)
    exact = point(math.inf)
    if exact is not None:
        found.append(exact)
    return list({one.partitioning.key(): one for one in found}.values())


def _kept(point: Callable[[float], Point | None], limit: float) -> Point | None:
    """The fastest found whose error is within a limit."""
    free = point(0.0)
    if free is None or free.error <= limit:
        return free
    # A second for the whole limit is more than any partitioning saves.
    low, high = 1e-9 / free.error**2, 1.0 / limit**2
    best = point(high)
    if best is None or best.error > limit:
        return None
    while high > _CLOSE * low:
        middle = math.sqrt(low * high)
        one = point(middle)
        if one is None:
            break
        if one.error <= limit:
            best, high = one, middle
        else:
            low = middle
    return best
