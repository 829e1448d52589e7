"""The course of a contest: round after round, until its rule is content."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from collage.cost.contest.rounds import Load, disturbed_rounds, to_discard, without
from collage.cost.contest.rules import ContestRule


class Stage(Protocol):
    """Where a contest takes place: real processes, or a simulation of them."""

    def turn(self, player: int, number: int) -> float | None:
        """Let one play its turn of a round; seconds per call, None when it failed.

        Parameters
        ----------
        player : int
            Its number.
        number : int
            The round's.

        Returns
        -------
        float or None
            The median of the turn's samples.
        """
        ...

    def is_out(self, player: int) -> bool:
        """Whether one failed, or was stopped, and plays no longer."""
        ...

    def is_cut_short(self) -> bool:
        """Whether there is no time left."""
        ...

    def load(self) -> Load:
        """What the machine did besides, since the last time that this was asked."""
        ...


@dataclass(frozen=True)
class Played:
    """What came of it.

    Attributes
    ----------
    table : tuple of tuple of float or None
        Seconds per call, a row for each player and a column for each round.
    loads : tuple of Load
        Of each round.

    Examples
    --------
    >>> from collage.cost.contest import Load
    >>> Played(table=((1.0,), (None,)), loads=(Load(others=0.0, idle=1.0),)).table[1]
    (None,)
    """

    table: tuple[tuple[float | None, ...], ...]
    loads: tuple[Load, ...]


Order = Callable[[Sequence[int], int], Sequence[int]]
"""Who comes when: a permutation of those who play, by the number of the round."""


def play(
    stage: Stage,
    players: int,
    rule: ContestRule,
    *,
    watchful: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    order: Order | None = None,
) -> Played:
    """Play rounds until the rule is content, or the time is up.

    A round that was cut short is dropped, unless it is the only one: it would tell some apart from
    others by whether they still played it.

    Parameters
    ----------
    stage : Stage
        Where turns are taken.
    players : int
        How many take part.
    rule : ContestRule
        Says who plays the next round.
    watchful : bool
        Whether rounds in which the machine was disturbed are measured again.
    clock : callable
        Seconds.
    order : callable, optional
        Of the turns, by who plays and the round's number; by default :func:`order_of_turns`.

    Returns
    -------
    Played
        Times by player and round, in seconds per call, and the machine's load in each round.

    Examples
    --------
    Of two players one takes twice as long, on an idle machine:

    >>> from collage.cost.contest import FixedRounds, Load
    >>> class Idle:
    ...     def turn(self, player: int, number: int) -> float:
    ...         return 1.0 + player
    ...     def is_out(self, player: int) -> bool:
    ...         return False
    ...     def is_cut_short(self) -> bool:
    ...         return False
    ...     def load(self) -> Load:
    ...         return Load(others=0.0, idle=1.0)
    >>> play(Idle(), 2, FixedRounds(3)).table
    ((1.0, 1.0, 1.0), (2.0, 2.0, 2.0))
    """
    table: list[list[float | None]] = [[] for _ in range(players)]
    loads: list[Load] = []
    playing: list[int] = list(range(players))
    turns = order or order_of_turns
    begin = clock()
    while True:
        disturbed = disturbed_rounds(table, loads) if watchful else ()
        active = [player for player in playing if not stage.is_out(player)]
        counting = without(table, to_discard(disturbed, loads))
        playing = rule.playing(counting, active, clock() - begin)
        if not playing:
            break
        since = clock()
        times = dict.fromkeys(range(players), None) | {
            player: stage.turn(player, len(loads)) for player in turns(playing, len(loads))
        }
        if loads and stage.is_cut_short():
            break
        loads.append(replace(stage.load(), sec=clock() - since))
        for player, row in enumerate(table):
            row.append(times[player])
    return Played(tuple(map(tuple, table)), tuple(loads))


def order_of_turns(playing: Sequence[int], number: int) -> list[int]:
    """Another one begins each time, and every second round goes backwards.

    Parameters
    ----------
    playing : sequence of int
        Who plays.
    number : int
        The round's, from 0.

    Returns
    -------
    list of int
        A permutation of ``playing``.

    Examples
    --------
    >>> [order_of_turns([0, 1, 2], number) for number in range(4)]
    [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]
    """
    start = number // 2 % len(playing)
    order = [*playing[start:], *playing[:start]]
    return order[::-1] if number % 2 else order


def shuffled(seed: str) -> Order:
    """An order of turns by chance, another one each round, and the same for the same seed.

    Examples
    --------
    >>> order = shuffled("5f1c")
    >>> order([0, 1, 2, 3], 7) == order([0, 1, 2, 3], 7), sorted(order([0, 1, 2, 3], 8))
    (True, [0, 1, 2, 3])
    """

    def order(playing: Sequence[int], number: int) -> list[int]:
        chance = random.Random(f"{seed} {number}")
        return chance.sample(list(playing), len(playing))

    return order
