"""Parts of models in contests: when a difference is decided, and what befalls whole rounds."""

from __future__ import annotations

import random

import pytest

from collage.cost.contest import Exchange, ExchangeRounds, Load, levelled, play, shuffled

PAIR = Exchange(kept=((0, 2),), rival=((1, 1),))


@pytest.mark.parametrize(
    ("kept", "rival", "is_open"),
    [
        ([1.0] * 6, [2.2] * 6, False),  # 10 % slower
        ([1.0] * 6, [1.8] * 6, False),  # 10 % faster
        ([1.0] * 6, [2.02] * 6, False),  # a tie
        ([1.0] * 5, [2.2] * 5, True),  # too few rounds
        ([1.0] * 6, [2.2, 1.9] * 3, True),  # now this way, now that
        ([1.0] * 3, [4.2] * 3, False),  # hopeless
        ([1.0] * 3, [0.9] * 3, False),  # the answer's own part is
    ],
)
def test_a_difference_is_open_until_it_is_decided_or_a_tie(
    kept: list[float], rival: list[float], is_open: bool
) -> None:
    assert ExchangeRounds((PAIR,)).is_open([kept, rival], PAIR) is is_open


def test_sums_are_compared_and_not_their_parts() -> None:
    joined = Exchange(kept=((0, 1), (1, 1)), rival=((2, 1),))
    rule = ExchangeRounds((joined,))
    assert not rule.is_open([[1.0] * 6, [1.0] * 6, [1.6] * 6], joined)
    assert joined.ratios([[1.0], [1.0], [1.6]]) == [0.8]


def test_who_is_far_behind_leaves_and_all_others_make_the_level() -> None:
    rule = ExchangeRounds((Exchange(((0, 1),), ((1, 1),)), Exchange(((0, 1),), ((2, 1),))))
    table = [[1.0] * 3, [3.0] * 3, [1.05] * 3, [7.0] * 3]
    assert rule.playing(table, [0, 1, 2, 3], spent_sec=0.1) == [0, 2, 3]


def test_without_patience_the_fewest_rounds_are_all() -> None:
    rule = ExchangeRounds((PAIR,), patience_sec=1.0)
    table = [[1.0] * 5, [2.2, 1.9, 2.1, 1.8, 2.0]]
    assert rule.playing(table, [0, 1], spent_sec=0.5) == [0, 1]
    assert rule.playing(table, [0, 1], spent_sec=1.5) == []


def test_levels_of_rounds_are_taken_out_of_those_that_left_early_too() -> None:
    chance = random.Random(0)
    true = [1.0, 2.0, 3.0, 5.0]
    level = [3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0]
    table = [[sec * up * chance.uniform(0.99, 1.01) for up in level] for sec in true]
    rows = [*table[:3], [*table[3][:1], *[None] * 6]]
    flat = levelled(rows)
    assert flat[3][0] == pytest.approx(5.0, rel=0.03)
    assert all(sec == pytest.approx(2.0, rel=0.03) for sec in flat[1])
    assert flat[3][1:] == (None,) * 6


def test_turns_come_in_another_order_each_round_and_in_the_same_again() -> None:
    class Stage:
        def __init__(self) -> None:
            self.turns: list[int] = []

        def turn(self, player: int, number: int) -> float:
            self.turns.append(player)
            return 1.0 + player

        def is_out(self, player: int) -> bool:
            return False

        def is_cut_short(self) -> bool:
            return False

        def load(self) -> Load:
            return Load(others=0.0, idle=1.0)

    rule = ExchangeRounds((), most=4, fewest=4)
    stages = Stage(), Stage()
    for stage in stages:
        play(stage, 5, rule, order=shuffled("a seed"))
    assert stages[0].turns == stages[1].turns
    rounds = [tuple(stages[0].turns[n : n + 5]) for n in range(0, 20, 5)]
    assert len(set(rounds)) > 1
    assert all(sorted(turns) == [0, 1, 2, 3, 4] for turns in rounds)
