"""Adaptive timing: as many samples as the spread asks for, few for what is hopeless.

When samples are enough is a criterion of its own, as in NVIDIA's nvbench, and needs no device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage.cost.base import Cost
from collage.cost.config import MeasureConfig

_BATCH = 10
"""Single samples taken at a time."""

_SHORT = 0.8
"""Samples may fall this far below their wanted length before their calls are counted anew."""

TimeCalls = Callable[[int], float]
"""Makes that many calls and returns the seconds they took together."""

TimeEach = Callable[[int], Sequence[float]]
"""Makes that many calls and returns the seconds that each of them took."""


@dataclass(frozen=True)
class StoppingCriterion:
    """Whether there are samples enough: they agree, or the time is spent, or there are many.

    Attributes
    ----------
    most : int
        Enough whatever they are.
    fewest_agreeing : int
        Before this many, agreement means nothing.
    fewest_in_time : int
        This many are taken however long they last.
    target_spread : float
        They agree when half the distance of their 10th and 90th percentile is within this share of
        their median; or when the median's standard error is, of twice as many samples.
    budget_sec : float
        The time for all of them.
    """

    most: int
    fewest_agreeing: int
    fewest_in_time: int
    target_spread: float
    budget_sec: float

    def is_met(self, samples: Sequence[float], spent_sec: float) -> bool:
        """Whether to stop.

        Parameters
        ----------
        samples : sequence of float
            Seconds; those taken so far.
        spent_sec : float
            What taking them took.

        Returns
        -------
        bool
            True when there are enough samples that agree, or the time or the most of them is
            reached.
        """
        if len(samples) >= self.most:
            return True
        if len(samples) >= self.fewest_in_time and spent_sec >= self.budget_sec:
            return True
        return len(samples) >= self.fewest_agreeing and self._agree(samples)

    def _agree(self, samples: Sequence[float]) -> bool:
        cost = Cost.of_samples(samples)
        allowed_sec = self.target_spread * cost.median_sec
        # Of normal samples that half distance is 1.28 standard deviations, and the standard error
        # of their median 1.25 of these over the root of their number.
        error_sec = cost.spread_sec / math.sqrt(len(samples))
        is_sure = len(samples) >= 2 * self.fewest_agreeing and error_sec <= allowed_sec
        return cost.spread_sec <= allowed_sec or is_sure


def take_samples(time_calls: TimeCalls, config: MeasureConfig) -> tuple[float, ...]:
    """Seconds per call, one mean per sample.

    Each sample spans enough calls to last ``min_repeat_sec``. Sampling ends early when the spread
    is below ``target_spread``, or the time is spent, after ``min_repeat`` samples. A call slower
    than ``slow_call_sec`` is sampled once.

    Parameters
    ----------
    time_calls : callable
        Makes and times calls.
    config : MeasureConfig
        How many, and how long.

    Returns
    -------
    tuple of float
        In the order in which they were taken; a single one of a slow call.
    """
    enough = StoppingCriterion(
        config.repeat,
        config.min_repeat,
        config.min_repeat,
        config.target_spread,
        config.timing_budget_sec,
    )
    number, elapsed = 1, time_calls(1)
    if elapsed > config.slow_call_sec:
        return (elapsed,)
    warm_sec, spent_sec = elapsed, 0.0
    samples: list[float] = []
    while not enough.is_met(samples, spent_sec):
        elapsed = time_calls(number)
        if elapsed < _SHORT * config.min_repeat_sec:
            # Calls were disturbed when their number was settled: begin again with more of them.
            per_call_sec = max(elapsed / number, 1e-9)
            number = max(number + 1, math.ceil(config.min_repeat_sec / per_call_sec))
            samples.clear()
        elif warm_sec < config.warmup_sec:
            warm_sec += elapsed
        else:
            samples.append(elapsed / number)
            spent_sec += elapsed
    return tuple(samples)


def take_single_samples(time_each: TimeEach, config: MeasureConfig) -> tuple[float, ...]:
    """Seconds per call on a device with a clock of its own: one call per sample.

    Calls come in small batches, each call after a flush of the cache. Sampling ends as
    :func:`take_samples` does, but after more samples: each of a short call is rougher.

    Parameters
    ----------
    time_each : callable
        Makes calls and times each.
    config
        As :func:`take_samples` takes it.

    Returns
    -------
    tuple of float
        In the order in which they were taken; a single one of a slow call.
    """
    cuda = config.cuda
    enough = StoppingCriterion(
        cuda.repeat,
        cuda.min_repeat,
        config.min_repeat,
        config.target_spread,
        config.timing_budget_sec,
    )
    begin = time.perf_counter()
    (first,) = time_each(1)
    if first > config.slow_call_sec:
        return (first,)
    batch = max(1, min(_BATCH, int(config.timing_budget_sec / max(first, 1e-9) / 4)))
    while time.perf_counter() - begin < cuda.warmup_sec:
        time_each(batch)
    samples: list[float] = []
    begin = time.perf_counter()
    while not enough.is_met(samples, time.perf_counter() - begin):
        samples += time_each(min(batch, cuda.repeat - len(samples)))
    return tuple(samples)
