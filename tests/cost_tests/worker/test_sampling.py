"""How many samples are taken, on a clock that does as it is told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.cost.base import Cost
from collage.cost.config import MeasureConfig
from collage.cost.worker.sampling import StoppingCriterion, take_samples


def clock(per_call_sec: Callable[[], float], log: list[int]) -> Callable[[int], float]:
    def time_calls(number: int) -> float:
        log.append(number)
        return number * per_call_sec()

    return time_calls


CONFIG = MeasureConfig(
    repeat=10, min_repeat=3, min_repeat_sec=0.01, warmup_sec=0.02, timing_budget_sec=0.3
)


def test_a_steady_candidate_gets_few_samples_of_enough_calls() -> None:
    log: list[int] = []
    samples = take_samples(clock(lambda: 1e-5, log), CONFIG)
    assert samples == pytest.approx([1e-5] * 3)
    assert log[0] == 1 and all(n * 1e-5 >= 0.01 for n in log[-3:])
    assert sum(log[:-3]) * 1e-5 >= CONFIG.warmup_sec


def test_a_noisy_candidate_gets_all_samples() -> None:
    noise: Iterator[float] = itertools.cycle([1e-3, 2e-3, 3e-3])
    assert len(take_samples(clock(lambda: next(noise), []), CONFIG)) == CONFIG.repeat


def test_of_a_noisy_candidate_as_many_as_its_median_takes_to_be_sure() -> None:
    criterion = StoppingCriterion(
        most=400, fewest_agreeing=4, fewest_in_time=4, target_spread=0.02, budget_sec=1e9
    )
    random = np.random.default_rng(0)
    counts, medians = [], []
    for _ in range(300):
        samples: list[float] = []
        while not criterion.is_met(samples, 0.0):
            samples.append(float(random.normal(1.0, 0.1)))
        counts.append(len(samples))
        medians.append(float(np.median(samples)))
    assert 25 < np.median(counts) < 60, "a tenth of 1.25 over the root of 40 is 0.02"
    assert np.std(medians) < 0.035 and abs(np.mean(medians) - 1.0) < 0.01


def test_a_slow_candidate_costs_no_more_than_its_budget() -> None:
    noise: Iterator[float] = itertools.cycle([0.2, 0.3, 0.4])
    log: list[int] = []
    assert len(take_samples(clock(lambda: next(noise), log), CONFIG)) == CONFIG.min_repeat
    assert set(log) == {1}


def test_a_hopeless_candidate_is_called_once() -> None:
    log: list[int] = []
    assert take_samples(clock(lambda: 5.0, log), CONFIG) == (5.0,)
    assert log == [1]


def test_a_slow_first_call_does_not_shorten_the_samples() -> None:
    """Packing weights takes long once; what follows is a thousand times faster."""
    times = itertools.chain([0.5], itertools.repeat(1e-5))
    log: list[int] = []
    samples = take_samples(clock(lambda: next(times), log), CONFIG)
    assert samples == pytest.approx([1e-5] * 3) and log[-1] * 1e-5 >= CONFIG.min_repeat_sec


@pytest.mark.parametrize(
    ("samples", "spent_sec", "met"),
    [
        ([], 9.0, False),
        ([1.0], 9.0, False),
        ([1.0, 2.0], 0.1, False),
        ([1.0, 2.0], 0.3, True),
        ([1.0, 1.0, 1.0], 0.1, False),
        ([1.0, 1.0, 1.0, 1.0], 0.1, True),
        ([1.0, 2.0, 1.0, 2.0], 0.1, False),
        ([1.0, 2.0] * 4, 0.1, True),
    ],
)
def test_samples_are_enough_when_they_agree_or_the_time_is_spent(
    samples: list[float], spent_sec: float, *, met: bool
) -> None:
    criterion = StoppingCriterion(
        most=8, fewest_agreeing=4, fewest_in_time=2, target_spread=0.02, budget_sec=0.3
    )
    assert criterion.is_met(samples, spent_sec) is met


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30))
def test_a_summary_agrees_with_numpy(samples: list[float]) -> None:
    cost = Cost.of_samples(samples)
    assert cost.is_valid and cost.samples_sec == tuple(samples)
    assert cost.median_sec == pytest.approx(float(np.median(samples)))
    low, high = np.quantile(samples, [0.1, 0.9])
    assert cost.spread_sec == pytest.approx((high - low) / 2, abs=1e-15)
    assert math.isfinite(cost.spread_sec)


@pytest.mark.parametrize(
    "wrong",
    [{"min_repeat": 0}, {"min_repeat": 99}, {"min_repeat_sec": 0.0}, {"run_timeout_sec": -1}],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        MeasureConfig(**wrong)
