"""Adaptive timing: as many samples as the spread asks for, few for what is hopeless."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from collage.cost.base import Cost, CostStatus
from collage.cost.measure_config import MeasureConfig

TimeCalls = Callable[[int], float]
"""Makes that many calls and returns the seconds they took together."""


def take_samples(time_calls: TimeCalls, config: MeasureConfig) -> tuple[float, ...]:
    """Seconds per call, one mean per sample.

    Each sample spans enough calls to last ``min_repeat_sec``. Sampling ends early when the spread
    is below ``target_spread``, or the time is spent, after ``min_repeat`` samples. A call slower
    than ``slow_call_sec`` is sampled once.
    """
    number, elapsed = 1, time_calls(1)
    if elapsed > config.slow_call_sec:
        return (elapsed,)
    warm = elapsed
    # The first calls may be slow for reasons of their own, so the number of calls is settled anew
    # while warming up.
    while warm < config.warmup_sec or elapsed < config.min_repeat_sec:
        if elapsed < config.min_repeat_sec:
            per_call = max(elapsed / number, 1e-9)
            number = max(number + 1, math.ceil(1.05 * config.min_repeat_sec / per_call))
        elapsed = time_calls(number)
        warm += elapsed
    samples: list[float] = []
    spent_sec = 0.0
    while len(samples) < config.repeat:
        elapsed = time_calls(number)
        spent_sec += elapsed
        samples.append(elapsed / number)
        if len(samples) >= config.min_repeat:
            if spent_sec >= config.timing_budget_sec:
                break
            cost = summarize(samples)
            if cost.spread_sec <= config.target_spread * cost.median_sec:
                break
    return tuple(samples)


def summarize(samples: Sequence[float]) -> Cost:
    """The valid cost of some samples: their median and half their 10–90 percentile distance."""
    low, median, high = np.percentile(np.asarray(samples), (10, 50, 90))
    return Cost(CostStatus.VALID, float(median), float(high - low) / 2, tuple(samples))
