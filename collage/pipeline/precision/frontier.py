"""The fastest partitioning for each error, by a multiplier on the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from collage.pipeline.costing.priced_costs import PricedCosts
from collage.pipeline.precision.error_model import ErrorModel
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.partitioning import Partitioning

_CLOSE = 1.002
"""Multipliers this near to each other count as one. Layers of one shape differ by little in what
they do to the error: the finer the steps, the fewer of them change at once."""

_USELESS = 1e3
"""As bad as any error. Some are infinite: there was no time to look, or rounding overflowed."""

_SHARES = (1.0, 0.8, 0.5, 0.25, 0.1)
"""Of the allowed error, for which partitionings are looked for: where the model is too hopeful, the
measured error rules the first ones out, and one of the others is the answer."""


@dataclass(frozen=True)
class Point:
    """A partitioning between time and error.

    Attributes
    ----------
    partitioning : Partitioning
        What it is.
    seconds, error : float
        Predicted: the sum of its parts' costs, and what its fewer digits do.
    """

    partitioning: Partitioning
    seconds: float
    error: float


def frontier(
    cheapest: Callable[[CandidateCosts], Partitioning | None],
    costs: CandidateCosts,
    errors: ErrorModel,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Point]:
    """Fast partitionings that keep to the allowed error and to parts of it.

    For each error two are found and the faster one is kept. One minimizes time plus a multiplier
    times the squared error, exactly, with the least multiplier that keeps to the error, found by
    halving on a logarithmic scale (Everett, "Generalized Lagrange multiplier method", Operations
    Research 11, 1963). In the dents of the frontier there is no such multiplier: of a chain of
    equal layers all change sides at once, since each border between digits costs time. So the
    other one is the fastest that rounds only products which may all be rounded within the error.

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
        Distinct ones, those for the largest error first; the last is exact.
    """
    search = _Searches(cheapest, costs, errors, should_stop)
    found: list[Point] = []
    for limit in (share * errors.max_error for share in _SHARES):
        both = [search.by_multiplier(limit), search.of_affordable(limit)]
        kept = [one for one in both if one is not None and one.error <= limit]
        if kept:
            found.append(min(kept, key=lambda one: one.seconds))
    exact = search.priced(math.inf)
    if exact is not None:
        found.append(exact)
    return list({one.partitioning.key(): one for one in found}.values())


@dataclass
class _Searches:
    """Searches with errors at a price, each made once."""

    cheapest: Callable[[CandidateCosts], Partitioning | None]
    costs: CandidateCosts
    errors: ErrorModel
    should_stop: Callable[[], bool]
    made: dict[float, Point] = field(default_factory=dict)

    def priced(self, multiplier: float) -> Point | None:
        """The optimum where a squared error of 1 costs so many seconds; None without time."""
        if multiplier not in self.made:
            point = self._point(PricedCosts(self.costs, self.errors.squared, multiplier))
            if point is None:
                return None
            self.made[multiplier] = point
        return self.made[multiplier]

    def by_multiplier(self, limit: float) -> Point | None:
        """The optimum for the least multiplier that keeps to an error."""
        free = self.priced(0.0)
        if free is None or free.error <= limit:
            return free
        # A second for the whole limit is more than any partitioning saves.
        low, high = 1e-9 / min(free.error, _USELESS) ** 2, 1.0 / limit**2
        best = self.priced(high)
        while best is not None and high > _CLOSE * low:
            middle = math.sqrt(low * high)
            point = self.priced(middle)
            if point is None:
                break
            if point.error <= limit:
                best, high = point, middle
            else:
                low = middle
        return best

    def of_affordable(self, limit: float) -> Point | None:
        """The fastest that rounds only products which together keep to an error."""
        chosen = self.errors.affordable(limit)

        def too_many(candidate: Candidate) -> float:
            return float(not self.errors.is_affordable(candidate, chosen))

        return self._point(PricedCosts(self.costs, too_many, math.inf))

    def _point(self, costs: CandidateCosts) -> Point | None:
        partitioning = None if self.should_stop() else self.cheapest(costs)
        if partitioning is None:
            return None
        seconds = sum(map(self._seconds, partitioning.candidates))
        return Point(partitioning, seconds, self.errors.error(partitioning.candidates))

    def _seconds(self, candidate: Candidate) -> float:
        known = self.costs.known(candidate)
        return self.costs.guess(candidate) if known is None else known
