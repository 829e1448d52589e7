"""More models than memory has room for: heats of some, whose best one plays on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.cost.contest import (
    Heat,
    Load,
    Outcome,
    PairedRounds,
    Played,
    Tolerance,
    joined,
    number_of_heats,
    paired_comparisons,
    play,
    who_fits,
)
from tests.cost_tests.contest.test_contest import SimulatedMachine, contest

QUIET = Load(others=0.0, idle=1.0)


class SomeOf(SimulatedMachine):
    """The machine as those see it who play a heat."""

    players: tuple[int, ...] = ()

    def turn(self, player: int, number: int) -> float | None:
        return super().turn(self.players[player], number)


def in_heats(true_sec: list[float], seed: int, room: int, noise: float = 0.01) -> Played:
    """Everybody takes one unit of the room."""
    machine = SomeOf(true_sec, seed, noise=noise)
    needs, heats = [1] * len(true_sec), []
    waiting, staying = list(range(len(true_sec))), None
    while waiting:
        entering = who_fits(waiting, needs, room, staying)
        waiting = waiting[len(entering) :]
        machine.players = tuple(entering) if staying is None else (staying, *entering)
        played = play(machine, len(machine.players), PairedRounds(), clock=lambda: machine.now)
        heats.append(Heat(machine.players, played))
        staying = heats[-1].best(set(machine.players))
    return joined(heats, len(true_sec))


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.permutations(range(8)))
@settings(max_examples=60, deadline=None)
def test_the_fastest_wins_whoever_it_meets(seed: int, room: int, places: list[int]) -> None:
    true_sec = [0.030 * 1.06**place for place in places]
    found = paired_comparisons(in_heats(true_sec, seed, room).table, range(8))
    for place, one in zip(places, found, strict=True):
        if place == 0:
            assert one.outcome is Outcome.CHOSEN
            continue
        # Who is slower is not held to be as good, and who never met the winner is compared as well.
        assert one.outcome not in (Outcome.TIE, Outcome.ALONE) and one.ratio is not None
        assert one.ratio.estimate == pytest.approx(1.06**place, rel=0.08)


def test_with_room_for_all_it_is_the_contest_that_it_would_be() -> None:
    true_sec = [0.03, 0.031, 0.05]
    assert in_heats(true_sec, 5, room=3) == contest(SimulatedMachine(true_sec, 5, noise=0.01))


def test_whoever_is_preferred_among_equals_of_different_heats_wins() -> None:
    for seed in range(20):
        true_sec = [0.0300, 0.0301, 0.0300, 0.0301, 0.0300]
        found = paired_comparisons(in_heats(true_sec, seed, 2, noise=0.002).table, range(5))
        assert found[0].is_chosen


def test_who_never_met_is_compared_by_way_of_those_who_did() -> None:
    first = Heat((0, 1), Played(((2.0,) * 8, (1.0,) * 8), (QUIET,) * 8))
    second = Heat((1, 2), Played(((1.0,) * 8, (0.5,) * 8), (QUIET,) * 8))
    third = Heat((2, 3), Played(((0.5,) * 8, (0.25,) * 8), (QUIET,) * 8))
    found = paired_comparisons(joined([first, second, third], 4).table, range(4))
    ratios = [one.ratio and one.ratio.estimate for one in found]
    assert ratios == [pytest.approx(8.0), pytest.approx(4.0), pytest.approx(2.0), None]
    assert [one.outcome for one in found] == [Outcome.SLOWER] * 3 + [Outcome.CHOSEN]


def test_few_rounds_on_the_way_prove_nothing() -> None:
    first = Heat((0, 1), Played(((1.2,) * 3, (1.0,) * 3), (QUIET,) * 3))
    second = Heat((1, 2), Played(((1.0,) * 3, (0.9,) * 3), (QUIET,) * 3))
    far, near, chosen = paired_comparisons(joined([first, second], 3).table, range(3))
    assert chosen.is_chosen and near.outcome is not Outcome.TIE
    assert far.ratio is not None and far.ratio.low <= 0.0 and far.ratio.high == math.inf
    assert far.outcome is Outcome.UNDECIDED


def test_tolerance_counts_by_way_of_others_too() -> None:
    first = Heat((0, 1), Played(((1.004,) * 8, (1.0,) * 8), (QUIET,) * 8))
    second = Heat((1, 2), Played(((1.05,) * 8, (1.0,) * 8), (QUIET,) * 8))
    table = joined([first, second], 3).table
    wide = paired_comparisons(table, [2, 1, 0], Tolerance(relative=0.06))
    assert [one.outcome for one in wide] == [Outcome.TIE, Outcome.TIE, Outcome.CHOSEN]
    assert paired_comparisons(table, [2, 1, 0])[0].outcome is Outcome.SLOWER


def test_who_has_no_time_does_not_play_on() -> None:
    heat = Heat((3, 4, 5), Played(((None,), (2.0,), (1.0,)), (QUIET,)))
    assert heat.best({3, 4, 5}) == 5 and heat.best({3, 4}) == 4
    assert heat.best({3}) is None and heat.best(set()) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 30))
def test_all_play_and_none_takes_more_room_than_there_is(needs: list[int], room: int) -> None:
    waiting, leader, heats = list(range(len(needs))), None, 0
    expected = number_of_heats(waiting, needs, room)
    while waiting:
        playing = who_fits(waiting, needs, room, leader)
        assert playing == waiting[: len(playing)] and playing
        held = sum(needs[player] for player in playing) + (needs[leader] if leader else 0)
        assert held <= room + (needs[0] if leader == 0 else 0) or len(playing) == 1
        waiting, leader, heats = waiting[len(playing) :], playing[0], heats + 1
    assert heats == expected
