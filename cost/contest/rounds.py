"""What a contest measured, round by round, and which rounds do not count."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Table = Sequence[Sequence[float | None]]
"""Seconds per call, a row for each model and a column for each round; None where one did not
play."""

AGAIN, AGAIN_SEC, MOST_AGAIN = 8, 5.0, 64
"""Disturbed rounds that are measured again: so many, or as many as so many seconds hold, up to a
number. Where more are, the machine is disturbed throughout: then every round counts, for all that
was measured in one round was disturbed alike. The first number alone would not do: some seconds
hold many rounds of models that are fast, and a program that burns the processors hits some turns of
a round and spares others."""

_SLOW = 1.15
"""A round is disturbed when everybody took so many times as long as they do otherwise."""

_FEWEST = 3
"""Before so many rounds nobody knows how long they take otherwise."""

_OTHERS_SHARE = 0.1
_IDLE_SHARE = 0.1
"""A round is disturbed, too, when other processes had so much of the processors' time and left so
little of it unused: then somebody waited."""


@dataclass(frozen=True)
class Tolerance:
    """Differences that are too small to matter.

    Attributes
    ----------
    relative : float
        A share of the faster time.
    absolute_sec : float
        Whatever share that is.

    Examples
    --------
    >>> Tolerance().ratio(1e-3), Tolerance().ratio(1e-5)
    (1.01, 1.1)
    """

    relative: float = 0.01
    absolute_sec: float = 1e-6

    def ratio(self, sec: float) -> float:
        """The largest ratio to a time that is still a tie."""
        return 1.0 + max(self.relative, self.absolute_sec / sec)


@dataclass(frozen=True)
class Load:
    """What else the processors did in one round, as shares of their time.

    Attributes
    ----------
    others : float
        Other processes, and other virtual machines on the same processor (steal).
    idle : float
        Nobody.
    waiting_counts : bool
        Whether turns are timed by a clock that goes on while others have the processor.
    sec : float
        How long the round took.

    Examples
    --------
    >>> Load(others=0.45, idle=0.02).is_disturbing, Load(others=0.45, idle=0.5).is_disturbing
    (True, False)
    """

    others: float
    idle: float
    waiting_counts: bool = True
    sec: float = 0.0

    @property
    def is_disturbing(self) -> bool:
        """Whether somebody waited for a processor, and that was timed."""
        return self.waiting_counts and self.others > _OTHERS_SHARE and self.idle < _IDLE_SHARE


@dataclass(frozen=True)
class Rounds:
    """One model's part in a contest.

    Attributes
    ----------
    contest : str
        Which one: rounds of different contests do not compare.
    seconds : tuple of float or None
        Per call, in each round of the contest; None where it did not play.
    disturbed : tuple of int
        Rounds, numbered from 0, in which the machine was disturbed.
    discarded : tuple of int
        Those of them that do not count.
    others : tuple of float
        The share of the processors' time that other processes had in each round. For information.

    Examples
    --------
    >>> rounds = Rounds("5f1c", (1e-3, 9e-3, 1e-3, None), disturbed=(1,), discarded=(1,))
    >>> rounds.counted
    (0.001, None, 0.001, None)
    """

    contest: str
    seconds: tuple[float | None, ...]
    disturbed: tuple[int, ...] = ()
    discarded: tuple[int, ...] = ()
    others: tuple[float, ...] = ()

    @property
    def counted(self) -> tuple[float | None, ...]:
        """Seconds in the rounds that count; None in those that do not."""
        return without([self.seconds], self.discarded)[0]


def without(table: Table, discarded: Sequence[int]) -> list[tuple[float | None, ...]]:
    """The table with nobody's times in some rounds.

    Parameters
    ----------
    table : table of float or None
        Of all rounds.
    discarded : sequence of int
        Those that do not count.

    Returns
    -------
    list of tuple of float or None
        A row for each player, None in the rounds that were taken out.

    Examples
    --------
    >>> without([[1.0, 9.0], [2.0, 2.0]], [1])
    [(1.0, None), (2.0, None)]
    """
    out = set(discarded)
    return [tuple(None if i in out else sec for i, sec in enumerate(row)) for row in table]


def to_discard(disturbed: Sequence[int], load: Sequence[Load]) -> tuple[int, ...]:
    """Which of the disturbed rounds do not count: none where there are too many.

    Parameters
    ----------
    disturbed : sequence of int
        Rounds, numbered from 0.
    load : sequence of Load
        Of each round.

    Returns
    -------
    tuple of int
        All of ``disturbed``, or none.

    Examples
    --------
    >>> seconds = [Load(others=0.5, idle=0.0, sec=1.0)] * 9
    >>> to_discard([1, 2], seconds), to_discard(range(9), seconds)
    ((1, 2), ())
    """
    lasted = sum(load[number].sec for number in disturbed)
    most = AGAIN if lasted > AGAIN_SEC else MOST_AGAIN
    return () if len(disturbed) > most else tuple(disturbed)


def disturbed_rounds(table: Table, load: Sequence[Load]) -> tuple[int, ...]:
    """The rounds in which the machine was disturbed.

    Somebody waited for a processor while others had it, or everybody took longer than they do in
    most rounds. What disturbs only one turn of one model is an outlier of one round, which a median
    does not mind.

    Parameters
    ----------
    table : table of float or None
        Of all rounds so far.
    load : sequence of Load
        Of each round.

    Returns
    -------
    tuple of int
        Their numbers, ascending.

    Examples
    --------
    >>> idle = [Load(0.0, 0.5)] * 4
    >>> disturbed_rounds([[1.0, 1.1, 4.0, 1.0], [2.0, 2.0, 7.0, 2.1]], idle)
    (2,)
    >>> disturbed_rounds([[1.0, 1.1, 4.0, 1.0], [2.0, 2.0, 2.1, 2.1]], idle)
    ()
    """
    found = {number for number, round_load in enumerate(load) if round_load.is_disturbing}
    for number in range(len(load)):
        slowness = [
            sec / statistics.median(played)
            for row in table
            if (sec := row[number]) is not None
            and len(played := [one for one in row if one is not None]) >= _FEWEST
        ]
        if slowness and min(slowness) > _SLOW:
            found.add(number)
    return tuple(sorted(found))
