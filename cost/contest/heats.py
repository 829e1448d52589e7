"""A contest of more models than memory has room for: some at a time, and the best of them stays.

Whoever plays a heat is compared with its leader in the same rounds. The leader meets the next ones,
so that everybody is compared with the last leader, at the least by way of those in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.contest.comparison import paired_comparisons
from collage.cost.contest.play import Played
from collage.cost.contest.rounds import Load, Table, disturbed_rounds, to_discard, without
from collage.cost.contest.rules import ContestRule


def who_fits(
    waiting: Sequence[int], needs: Sequence[int], room: float, leader: int | None = None
) -> list[int]:
    """Who plays the next heat.

    Parameters
    ----------
    waiting : sequence of int
        Who did not play yet, in their order.
    needs : sequence of int
        Bytes that each of all players takes.
    room : float
        Bytes that there are.
    leader : int or None
        Of the heat before, who plays on.

    Returns
    -------
    list of int
        Of those who wait, the first that fit beside the leader; one in any case.

    Examples
    --------
    >>> who_fits([1, 2, 3, 4], [2, 1, 3, 1, 1], room=7, leader=0)
    [1, 2, 3]
    >>> who_fits([1, 2], [5, 5, 5], room=7, leader=0)
    [1]
    """
    left = room - (0 if leader is None else needs[leader])
    found: list[int] = []
    for player in waiting:
        left -= needs[player]
        if left < 0 and found:
            break
        found.append(player)
    return found


def number_of_heats(
    waiting: Sequence[int], needs: Sequence[int], room: float, leader: int | None = None
) -> int:
    """How many heats there are to be, as if the first of each became its leader.

    Parameters
    ----------
    waiting, needs, room, leader
        As :func:`who_fits` takes them.

    Returns
    -------
    int
        Zero where nobody waits.

    Examples
    --------
    >>> number_of_heats([0, 1, 2, 3, 4], [1] * 5, room=3), number_of_heats([0, 1], [9, 9], 20.0)
    (2, 1)
    """
    rest, heats = list(waiting), 0
    while rest:
        playing = who_fits(rest, needs, room, leader)
        rest, leader, heats = rest[len(playing) :], playing[0], heats + 1
    return heats


@dataclass(frozen=True)
class InTime(ContestRule):
    """A rule that is content when time is up, unless nothing was played.

    Attributes
    ----------
    rule : ContestRule
        Until then.
    sec : float
        What the rounds may take.

    Examples
    --------
    >>> from collage.cost.contest import FixedRounds
    >>> rule = InTime(FixedRounds(9), sec=2.0)
    >>> rule.playing([[1.0], [1.1]], [0, 1], spent_sec=2.1)
    []
    >>> rule.playing([[], []], [0, 1], spent_sec=2.1)
    [0, 1]
    """

    rule: ContestRule
    sec: float

    def playing(self, table: Table, active: Sequence[int], spent_sec: float) -> list[int]:
        """As the rule has it, as long as there is time; see :class:`ContestRule`.

        Returns
        -------
        list of int
            Out of ``active``.
        """
        if spent_sec >= self.sec and any(sec is not None for row in table for sec in row):
            return []
        return self.rule.playing(table, active, spent_sec)


@dataclass(frozen=True)
class Heat:
    """Some of the players, and what came of their rounds.

    Attributes
    ----------
    players : tuple of int
        By their numbers among all.
    played : Played
        A row for each of them.

    Examples
    --------
    The third player took part in the second heat alone:

    >>> still = Load(others=0.0, idle=1.0)
    >>> first = Heat((0, 1), Played(((1.0,), (2.0,)), (still,)))
    >>> second = Heat((0, 2), Played(((1.1,), (1.2,)), (still,)))
    >>> first.best({0, 1}), joined([first, second], 3).table
    (0, ((1.0, 1.1), (2.0, None), (None, 1.2)))
    """

    players: tuple[int, ...]
    played: Played

    def best(self, among: set[int]) -> int | None:
        """Who plays on: the first of those that nobody is faster than.

        Parameters
        ----------
        among : set of int
            Who may.

        Returns
        -------
        int or None
            None where none of them has a time.
        """
        table, loads = self.played.table, self.played.loads
        counting = without(table, to_discard(disturbed_rounds(table, loads), loads))
        rows = {
            player: row
            for player, row in zip(self.players, counting, strict=True)
            if player in among and any(row)
        }
        found = paired_comparisons(list(rows.values()), range(len(rows))) if rows else []
        places = [player for player, one in zip(rows, found, strict=True) if one.is_chosen]
        return places[0] if places else None


def joined(heats: Sequence[Heat], players: int) -> Played:
    """All heats as one contest.

    Parameters
    ----------
    heats : sequence of Heat
        In their order.
    players : int
        How many there are in all.

    Returns
    -------
    Played
        In the rounds of heats that one did not play it has no time.

    Examples
    --------
    >>> heats = [Heat((n,), Played(((1.0 + n,),), (Load(others=0.0, idle=1.0),))) for n in (0, 1)]
    >>> joined(heats, 2).table
    ((1.0, None), (None, 2.0))
    """
    table: list[list[float | None]] = [[] for _ in range(players)]
    loads: list[Load] = []
    for heat in heats:
        rows = dict(zip(heat.players, heat.played.table, strict=True))
        for player, row in enumerate(table):
            row.extend(rows.get(player, [None] * len(heat.played.loads)))
        loads += heat.played.loads
    return Played(tuple(map(tuple, table)), tuple(loads))
