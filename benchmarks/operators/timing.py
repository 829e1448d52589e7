"""Times something that is called again and again: on the processor, or on a GPU."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

Run = Callable[[], object]
"""Calls once; on a GPU it only enqueues."""

_SAMPLES = 5


class Timer(ABC):
    """Takes turns in which one candidate is timed."""

    @abstractmethod
    def turn(self, run: Run, turn_sec: float) -> float:
        """Seconds of one call.

        Parameters
        ----------
        run : callable
            Called before.
        turn_sec : float
            How long the turn lasts, about.
        """


class CpuTimer(Timer):
    """The fastest of a few batches, for another program may disturb any.

    Parameters
    ----------
    threads : int
        With one, the process's own time counts, which another program's load does not lengthen;
        with more, the wall clock's.
    """

    def __init__(self, threads: int) -> None:
        self._clock = time.process_time if threads == 1 else time.perf_counter

    def turn(self, run: Run, turn_sec: float) -> float:
        run()
        begin = self._clock()
        run()
        once = self._clock() - begin
        calls = max(1, int(turn_sec / (_SAMPLES + 1) / max(once, 1e-7)))
        self._batch(run, calls)
        return min(self._batch(run, calls) for _ in range(_SAMPLES))

    def _batch(self, run: Run, calls: int) -> float:
        begin = self._clock()
        for _ in range(calls):
            run()
        return (self._clock() - begin) / calls


class GpuTimer(Timer):
    """By events around one call, the cache flushed before it, its launch hidden by the flush.

    That is what a call takes inside a captured graph, whoever launches it.
    """

    _LEAD_FACTOR = 2.0
    _MOST = 100
    _DOUBLINGS = 3

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        self._buffer = torch.zeros(max(size, 1 << 24) // 4, dtype=torch.int32, device="cuda")
        self._flush_sec = min(self._enqueued(self._buffer.zero_)[1] for _ in range(5))

    def turn(self, run: Run, turn_sec: float) -> float:
        launch_sec, once = min(self._enqueued(run) for _ in range(3))
        flushes = 1 + int(self._LEAD_FACTOR * launch_sec / self._flush_sec)
        per_sample = once + (flushes + 1) * self._flush_sec
        count = min(self._MOST, max(_SAMPLES, int(turn_sec / per_sample)))
        for doubled in range(self._DOUBLINGS + 1):
            hidden, late = self._samples(run, count, flushes << doubled)
            if len(hidden) >= len(late):
                break
        return statistics.median(hidden or late) * 1e-3

    def _samples(self, run: Run, count: int, flushes: int) -> tuple[list[float], list[float]]:
        """Milliseconds of calls that were launched before the device came to them, and of others.

        Where another program held up the launch, the device has waited between the events: such a
        sample is none of the call's time.
        """
        events = [[self._cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        hidden = []
        for first, last in events:
            self._cuda.synchronize()
            for _ in range(flushes):
                self._buffer.zero_()
            first.record()
            run()
            last.record()
            hidden.append(not first.query())
        self._cuda.synchronize()
        times = [float(first.elapsed_time(last)) for first, last in events]
        samples = list(zip(times, hidden, strict=True))
        return [ms for ms, ok in samples if ok], [ms for ms, ok in samples if not ok]

    def _enqueued(self, run: Run) -> tuple[float, float]:
        """Seconds of the launch, and until all was done."""
        self._cuda.synchronize()
        begin = time.perf_counter()
        run()
        launched = time.perf_counter()
        self._cuda.synchronize()
        return launched - begin, time.perf_counter() - begin


def timer_of(device: str, threads: int) -> Timer:
    """Of ``cpu`` or ``cuda``."""
    return GpuTimer() if device == "cuda" else CpuTimer(threads)
