"""Adaptive timing: as many samples as the spread asks for, few for what is hopeless."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

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


def take_samples(time_calls: TimeCalls, config: MeasureConfig) -> tuple[float, ...]:
    """Seconds per call, one mean per sample.

    Each sample spans enough calls to last ``min_repeat_sec``. Sampling ends early when the spread
    is below ``target_spread``, or the time is spent, after ``min_repeat`` samples. A call slower
    than ``slow_call_sec`` is sampled once.
    """
    number, elapsed = 1, time_calls(1)
    if elapsed > config.slow_call_sec:
        return (elapsed,)
    warm_sec, spent_sec = elapsed, 0.0
    samples: list[float] = []
    while len(samples) < config.repeat:
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
            if len(samples) >= config.min_repeat and (
                spent_sec >= config.timing_budget_sec or _agree(samples, config)
            ):
                break
    return tuple(samples)


def take_single_samples(time_each: TimeEach, config: MeasureConfig) -> tuple[float, ...]:
    """Seconds per call on a device with a clock of its own: one call per sample.

    Calls come in small batches, each call after a flush of the cache. Sampling ends as
    :func:`take_samples` does, but after more samples: each of a short call is rougher.
    """
    cuda = config.cuda
    begin = time.perf_counter()
    (first,) = time_each(1)
    if first > config.slow_call_sec:
        return (first,)
    batch = max(1, min(_BATCH, int(config.timing_budget_sec / max(first, 1e-9) / 4)))
    while time.perf_counter() - begin < cuda.warmup_sec:
        time_each(batch)
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < cuda.repeat:
        samples += time_each(min(batch, cuda.repeat - len(samples)))
        spent = time.perf_counter() - begin >= config.timing_budget_sec
        if spent and len(samples) >= config.min_repeat:
            break
        if len(samples) >= cuda.min_repeat and _agree(samples, config):
            break
    return tuple(samples)


def _agree(samples: Sequence[float], config: MeasureConfig) -> bool:
    cost = Cost.of_samples(samples)
    return cost.spread_sec <= config.target_spread * cost.median_sec
