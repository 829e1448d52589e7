"""The cheapest cover that weighs no more than a limit, where candidates cost and weigh something.

That is a knapsack, which is hard. Its Lagrangian relaxation is not: with a price on weight, a
search over ``cost + price * weight`` is one over costs. Handler and Zang ("A dual algorithm for the
constrained shortest path problem", Networks 10, 1980) and Jüttner, Szviatovszki, Mécs and Rajkó
("Lagrange relaxation based method for the QoS routing problem", INFOCOM 2001), who call it LARAC,
close in on the price from both sides: two covers, one too heavy and one not, are equally good at
one price; if a third is better there, it takes the place of one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from collage.search.strategies.candidate_pool import CandidatePool
from collage.search.strategies.cover import DEFAULT_MAX_STATES

_GAIN = 1e-12
"""Relative: what is better by less is rounding."""


@dataclass(frozen=True)
class WeighedCover:
    """A cover by what it costs and weighs.

    Attributes
    ----------
    positions : tuple of int
        In the pool.
    seconds : float
        Its candidates' costs together.
    weight : float
        Their weights.

    Examples
    --------
    >>> WeighedCover((), seconds=2.0, weight=3.0).priced(0.5)
    3.5
    """

    positions: tuple[int, ...]
    seconds: float
    weight: float

    def priced(self, price: float) -> float:
        """Its seconds where each unit of weight costs some."""
        return self.seconds + price * self.weight


Solve = Callable[[float], WeighedCover | None]
"""The cheapest cover at a price; None where there is none, or no time to find it."""


def solver(
    pool: CandidatePool,
    weights: list[float],
    should_stop: Callable[[], bool] = lambda: False,
) -> Solve:
    """Who finds cheapest covers at prices.

    Parameters
    ----------
    pool : CandidatePool
        Those of its candidates that are measured take part.
    weights : list of float
        By position in the pool.
    should_stop : callable, optional
        When to give up.

    Returns
    -------
    callable
        A search for each price, exact unless it takes more than
        :data:`~collage.search.strategies.cover.DEFAULT_MAX_STATES` states.
    """
    usable = [p for p, measured in enumerate(pool.measured) if measured]

    def solve(price: float) -> WeighedCover | None:
        values = [s + price * w for s, w in zip(pool.values, weights, strict=True)]
        cover = pool.cover(DEFAULT_MAX_STATES, should_stop, only=usable, values=values)
        if cover is None or should_stop():
            return None
        path = cover.positions
        seconds, weight = (math.fsum(by[p] for p in path) for by in (pool.values, weights))
        return WeighedCover(path, seconds, weight)

    return solve


def lighter_cover(
    solve: Solve, heavy: WeighedCover, limit: float, most: float
) -> WeighedCover | None:
    """The first cover within a limit on weight, of those that are the cheapest at some price.

    No cover that weighs no more than it does is cheaper. Between its weight and the limit there may
    be some that are: those are not the cheapest at any price.

    Parameters
    ----------
    solve : callable
        See :func:`solver`.
    heavy : WeighedCover
        One over the limit.
    limit : float
        The most that it may weigh.
    most : float
        The highest price.

    Returns
    -------
    WeighedCover or None
        None where nothing within the limit is the cheapest at a price up to ``most``.

    Notes
    -----
    A search for each step. Each step finds another vertex of the lower hull of costs over weights,
    so there are at most as many as it has, and in practice three to eight: the two ends move
    towards each other as in a secant method.

    Examples
    --------
    Three covers: the lighter ones cost more.

    >>> covers = [WeighedCover((), 1.0, 10.0), WeighedCover((), 1.5, 6.0), WeighedCover((), 3, 2.0)]
    >>> def solve(price):
    ...     return min(covers, key=lambda cover: cover.priced(price))
    >>> lighter_cover(solve, covers[0], limit=9.0, most=1.0)
    WeighedCover(positions=(), seconds=1.5, weight=6.0)
    >>> lighter_cover(solve, covers[0], limit=9.0, most=0.1) is None
    True
    """
    light = solve(most)
    if light is None or light.weight > limit:
        return None
    while True:
        price = (light.seconds - heavy.seconds) / (heavy.weight - light.weight)
        price = min(max(price, 0.0), most)
        found = solve(price)
        if found is None:
            return None
        if found.priced(price) >= light.priced(price) - _GAIN * abs(light.priced(price)):
            return light
        if found.weight > limit:
            heavy = found
        else:
            light = found
