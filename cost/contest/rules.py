"""Who plays the next round of a contest, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from collage.cost.contest.comparison import Outcome, compare, leader, paired_ratios
from collage.cost.contest.interval import median_interval
from collage.cost.contest.rounds import Table, Tolerance


class ContestRule(Protocol):
    """Decides from what was measured so far.

    Examples
    --------
    >>> rule: ContestRule = FixedRounds(1)
    >>> rule.playing([[], []], [0, 1], spent_sec=0.0)
    [0, 1]
    """

    def playing(self, table: Table, active: Sequence[int], spent_sec: float) -> list[int]:
        """Who plays the next round; nobody when it is over.

        Parameters
        ----------
        table : table of float or None
            A row for each that takes part, of the rounds that count.
        active : sequence of int
            The rows that played the last round, without those that failed.
        spent_sec : float
            What the rounds have taken.

        Returns
        -------
        list of int
            Rows of the table, out of ``active``.
        """
        ...


@dataclass(frozen=True)
class FixedRounds(ContestRule):
    """Everybody plays so many rounds.

    Attributes
    ----------
    number : int
        Of rounds that count.

    Examples
    --------
    >>> FixedRounds(2).playing([[1.0, 1.1], [9.0, 9.1]], [0, 1], spent_sec=20.2)
    []
    """

    number: int

    def playing(self, table: Table, active: Sequence[int], spent_sec: float) -> list[int]:
        """Everybody until the last round, then nobody; see :class:`ContestRule`.

        Returns
        -------
        list of int
            ``active`` until ``number`` rounds are played, then empty.
        """
        return [] if _played(table) >= self.number else list(active)


@dataclass(frozen=True)
class EarlyExit:
    """Who leaves early.

    Attributes
    ----------
    rounds : int
        Rounds that it must have played.
    ratio : float
        To the leader, which it must be beyond.
    confidence : float
        With which its median must be.
    """

    rounds: int
    ratio: float
    confidence: float


@dataclass(frozen=True)
class PairedRounds(ContestRule):
    """Goes on until everybody is told apart from the leader, or tied with it.

    Who is hopeless leaves, and so does who is slower: a leader is only ever followed by a faster
    one. One that is alone with the leader in this sense ends the contest.

    Attributes
    ----------
    most : int
        Rounds at the most.
    fewest_alone : int
        Rounds of one that nobody plays against (any longer).
    tolerance : Tolerance
        Of a tie.
    patience_sec : float
        After so much time, for each that takes part, the fewest rounds that can decide are all.
    fewest : int
        Those rounds.
    early_exits : tuple of EarlyExit
        Any of them makes one leave.

    Examples
    --------
    >>> rule = PairedRounds()
    >>> rule.playing([[1.0] * 3, [2.5] * 3, [1.4] * 3], [0, 1, 2], spent_sec=0.3)
    [0, 2]
    >>> rule.playing([[1.0] * 8, [2.5] * 3 + [None] * 5, [1.02] * 8], [0, 2], spent_sec=0.7)
    []
    """

    most: int = 25
    fewest_alone: int = 5
    tolerance: Tolerance = field(default_factory=Tolerance)
    patience_sec: float = 1.5
    fewest: int = 8
    early_exits: tuple[EarlyExit, ...] = (EarlyExit(3, 2.0, 0.75), EarlyExit(5, 1.3, 0.9))

    def playing(self, table: Table, active: Sequence[int], spent_sec: float) -> list[int]:
        """Who is neither slower nor hopeless; see :class:`ContestRule`.

        Returns
        -------
        list of int
            Ascending; empty when everything is decided, or patience is at its end.
        """
        played = _played(table)
        if not active or played >= self.most:
            return []
        if played == 0:
            return list(active)
        ahead = leader(table, active)
        open_still, staying = False, [ahead]
        for row in active:
            if row == ahead or self._is_hopeless(paired_ratios(table[row], table[ahead])):
                continue
            outcome = compare(table[row], table[ahead], self.tolerance).outcome
            if outcome is not Outcome.SLOWER:
                staying.append(row)
            open_still = open_still or outcome in (Outcome.UNDECIDED, Outcome.ALONE)
        patient = spent_sec <= self.patience_sec * len(table) or played < self.fewest
        if (open_still and patient) or played < self.fewest_alone:
            return sorted(staying)
        return []

    def _is_hopeless(self, ratios: Sequence[float]) -> bool:
        return any(
            len(ratios) >= kind.rounds and median_interval(ratios, kind.confidence).low > kind.ratio
            for kind in self.early_exits
        )


def _played(table: Table) -> int:
    """Rounds that count."""
    return max((sum(sec is not None for sec in row) for row in table), default=0)
