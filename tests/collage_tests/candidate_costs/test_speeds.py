"""At what speeds a machine timed candidates, told by those that were timed twice."""

from __future__ import annotations

import random
import statistics

import pytest

from collage.candidate_costs.speeds import stretches


def ratios(chance: random.Random, levels: list[float], noise: float) -> list[tuple[int, float]]:
    """Of as many places as there are levels, a twentieth of them far out."""

    def drawn(level: float) -> float:
        far = 1.8 if chance.random() < 0.05 else 1.0
        return level * far * chance.lognormvariate(0.0, noise)

    return list(enumerate(map(drawn, levels)))


@pytest.mark.parametrize("first", [0.6, 0.71, 1.4])
@pytest.mark.parametrize("border", [8, 20, 34])
def test_a_step_is_found_where_it_is(first: float, border: int) -> None:
    chance = random.Random(0)
    levels = [first] * border + [1.0] * (44 - border)
    drawn = [stretches(ratios(chance, levels, 0.04)) for _ in range(50)]
    told = [found for found in drawn if len(found) > 1]
    # Where a quarter of a side are far out, nothing is told.
    assert len(told) >= 0.8 * len(drawn)
    assert statistics.median(abs(found[0].end - border) for found in told) <= 2
    relative = [found[0].level / found[-1].level for found in told]
    assert statistics.median(relative) == pytest.approx(first, rel=0.03)


def test_noise_alone_is_one_speed() -> None:
    chance = random.Random(1)
    levels = [1.0] * 44
    for noise in (0.01, 0.05, 0.1, 0.2):
        told = [len(stretches(ratios(chance, levels, noise))) > 1 for _ in range(100)]
        assert sum(told) <= 10, noise


def test_a_slow_change_is_followed_in_steps() -> None:
    levels = [0.6 + 0.4 * n / 59 for n in range(60)]
    found = stretches(ratios(random.Random(2), levels, 0.03))
    off = []
    for place, level in enumerate(levels):
        told = next(one.level for one in found if place < one.end)
        off.append(abs(told / level - 1.0))
    assert len(found) >= 3 and max(off) < 0.2


def test_few_say_nothing_of_speeds() -> None:
    points = [(n, 0.5 if n < 4 else 1.0) for n in range(9)]
    assert len(stretches(points)) == 1


def test_bursts_are_no_speed_of_what_lies_between_them() -> None:
    """As another program made them while ResNet-50 was searched: at places 38 to 77 and from 246 on
    everything took twice as long, and few of those in between were timed again."""
    usual = [3, 4, 5, 6, 8, 10, 16, 21, 24, 28, 29, 30, 32, 34, 49, 98, 199, 224]
    slow = [38, 39, 60, 64, 65, 66, 67, 68, 69, 71, 72, 73, 74, 76, 77]
    points = [*((n, 0.97) for n in usual), *((n, 0.47) for n in slow)]
    assert len(stretches(points)) == 1
