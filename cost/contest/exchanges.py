"""Contests of parts: what runs some operators now, against what could run the same ones.

A search adds up costs, so what decides between two of its answers is only where they differ: some
parts against others over the same operators. Here such a difference is a pair of sums over rows of
a table, compared in rounds as whole models are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collage.cost.contest.comparison import paired_ratios
from collage.cost.contest.interval import median_interval
from collage.cost.contest.rounds import Table, Tolerance
from collage.cost.contest.rules import ContestRule

_CONFIDENCE = 0.95
"""Six rounds are the fewest that give such an interval."""

_FAR = ((3, 2.0), (5, 1.3))
"""After so many rounds, all of which were so many times apart, nothing is left to decide."""

_SWEEPS = 4
"""Of taking medians by rows and by rounds in turn; a few settle it."""

Parts = tuple[tuple[int, int], ...]
"""Rows of a table, each with how often it counts."""


@dataclass(frozen=True)
class Exchange:
    """Two ways to run the same operators.

    Attributes
    ----------
    kept, rival : tuple of (int, int)
        The rows that each takes, with how often.

    Examples
    --------
    >>> sorted(Exchange(kept=((0, 1),), rival=((2, 1), (3, 4))).rows)
    [0, 2, 3]
    """

    kept: Parts
    rival: Parts

    @property
    def rows(self) -> set[int]:
        """Those of both."""
        return {row for row, _ in (*self.kept, *self.rival)}

    def ratios(self, table: Table) -> list[float]:
        """The rival's time over that of what is kept, in the rounds that all of them played."""
        return paired_ratios(_sums(table, self.rival), _sums(table, self.kept))


@dataclass(frozen=True)
class ExchangeRounds(ContestRule):
    """Goes on until each exchange is decided, either way, or a tie.

    A row plays for as long as an exchange that it is in is open, those in none the fewest rounds.

    Attributes
    ----------
    exchanges : tuple of Exchange
        What is to be decided.
    most : int
        Rounds at the most.
    fewest : int
        What everybody plays.
    tolerance : Tolerance
        Of a tie.
    patience_sec : float
        After so much time the fewest rounds are all.

    Examples
    --------
    >>> rule = ExchangeRounds((Exchange(((0, 1),), ((1, 1),)), Exchange(((0, 1),), ((2, 1),))))
    >>> rule.playing([[1.0] * 6, [1.5] * 6, [0.99, 1.1] * 3], [0, 1, 2], spent_sec=0.1)
    [0, 2]
    """

    exchanges: tuple[Exchange, ...]
    most: int = 20
    fewest: int = 5
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(relative=0.02))
    patience_sec: float = math.inf

    def playing(self, table: Table, active: Sequence[int], spent_sec: float) -> list[int]:
        """Who is in an open exchange; see :class:`ContestRule`.

        Returns
        -------
        list of int
            Ascending; empty when all is decided, or patience is at its end.
        """
        played = max((sum(sec is not None for sec in row) for row in table), default=0)
        if played >= self.most or (played >= self.fewest and spent_sec > self.patience_sec):
            return []
        there = set(active)
        open_still = [
            one for one in self.exchanges if one.rows <= there and self.is_open(table, one)
        ]
        wanted = set().union(*(one.rows for one in open_still))
        if played < self.fewest:
            # Who is far behind is known for what it is; all the others make the level of a round.
            wanted |= there - self._far_behind(table, there)
        return sorted(wanted & there) if wanted else []

    def is_open(self, table: Table, exchange: Exchange) -> bool:
        """Whether more rounds could tell which way is the faster one.

        Parameters
        ----------
        table : table of float or None
            Of the rounds that count.
        exchange : Exchange
            Of rows of it.

        Returns
        -------
        bool
            False once the interval of the ratio excludes 1, or lies within the tolerance.
        """
        ratios = exchange.ratios(table)
        if not ratios or self._is_far(ratios):
            return not ratios
        kept_sec = [sec for sec in _sums(table, exchange.kept) if sec is not None]
        most = self.tolerance.ratio(float(np.median(kept_sec)))
        interval = median_interval(ratios, _CONFIDENCE)
        return interval.low <= 1.0 <= interval.high and not interval.within(1 / most, most)

    def _is_far(self, ratios: Sequence[float]) -> bool:
        return any(
            len(ratios) >= rounds and (min(ratios) > apart or max(ratios) < 1 / apart)
            for rounds, apart in _FAR
        )

    def _far_behind(self, table: Table, there: set[int]) -> set[int]:
        """Rows that are in no exchange but those that they lost by far."""
        lost, others = set[int](), set[int]()
        for one in self.exchanges:
            ratios = one.ratios(table)
            is_lost = bool(ratios) and self._is_far(ratios) and min(ratios) > 1.0
            (lost if is_lost else others).update(row for row, _ in one.rival)
            others.update(row for row, _ in one.kept)
        return (lost - others) & there


def levelled(table: Table) -> list[tuple[float | None, ...]]:
    """The times of a table without what befell whole rounds.

    By medians in turn (Tukey's median polish, of logarithms): each round has a level, by which all
    that played in it took longer than they do in most rounds; it is taken out. So whoever left
    early is comparable to those who stayed.

    Parameters
    ----------
    table : table of float or None
        A row for each that played, a column for each round.

    Returns
    -------
    list of tuple of float or None
        Of the same shape.

    Examples
    --------
    Everything took twice as long in the second round:

    >>> levelled([[1.0, 2.0, 1.0], [3.0, 6.0, None], [5.0, 10.0, 5.0]])[1]
    (3.0, 3.0, None)
    """
    if not table or not table[0]:
        return [tuple(row) for row in table]
    times = np.array([[np.nan if sec is None else sec for sec in row] for row in table])
    logs, level = np.log(times), np.zeros(times.shape[1])
    played = ~np.isnan(logs)
    rows, rounds = played.any(axis=1), played.any(axis=0)
    for _ in range(_SWEEPS):
        own = np.zeros(len(table))
        own[rows] = np.nanmedian((logs - level)[rows], axis=1)
        level[rounds] = np.nanmedian((logs - own[:, None])[:, rounds], axis=0)
        level -= np.median(level[rounds]) if rounds.any() else 0.0
    flat = times / np.exp(level)
    return [
        tuple(float(sec) if there else None for sec, there in zip(row, known, strict=True))
        for row, known in zip(flat, played, strict=True)
    ]


def _sums(table: Table, parts: Parts) -> list[float | None]:
    """By round, what parts take together; None where one did not play."""
    rows = [table[row] for row, _ in parts]
    counts = [count for _, count in parts]
    found: list[float | None] = []
    for times in zip(*rows, strict=True):
        known = [sec for sec in times if sec is not None]
        complete = len(known) == len(times)
        found.append(
            math.fsum(n * sec for n, sec in zip(counts, known, strict=True)) if complete else None
        )
    return found
