"""Emptying the second-level cache before a sample, and hiding launches behind it."""

from __future__ import annotations

import math
import time
from typing import Protocol

_PROBES = 8
"""Fills that are timed to learn how long one takes."""


class Memory(Protocol):
    """What fills device memory: :class:`collage.backends.toolchain.cuda_driver.CudaDriver`."""

    def fill(self, address: int, words: int, stream: int) -> None:
        """Write zeros to device memory, in a stream's order.

        Parameters
        ----------
        address : int
            Where.
        words : int
            How many, of 32 bits.
        stream : int
            The handle of the stream.
        """

    def synchronize(self) -> None:
        """Wait for everything that the device was given to do."""


class CacheFlush:
    """Fills a buffer larger than the cache, as often as it takes to last ``lead_sec``.

    In a model, what a partition reads has been written by others long ago or is a weight: a kernel
    that is repeated at once would find all of it in the cache. While the device fills, the
    processor launches the call that is timed, so the time from event to event holds no launch
    latency: as in a captured graph, or a stream that is full.

    Parameters
    ----------
    memory : Memory
        The driver.
    address : int
        The buffer in device memory.
    bytes : int
        Its size: a multiple of the cache's.
    stream : int
        Where calls are launched.
    """

    def __init__(self, memory: Memory, address: int, bytes: int, stream: int) -> None:
        self._memory = memory
        self._address = address
        self._words = bytes // 4
        self._stream = stream
        self._times = 1
        self.fill_sec = self._time_one()

    def __call__(self) -> None:
        for _ in range(self._times):
            self._memory.fill(self._address, self._words, self._stream)

    def last(self, lead_sec: float) -> None:
        """Make every flush from now on take at least this long."""
        self._times = max(1, math.ceil(lead_sec / self.fill_sec))

    def _time_one(self) -> float:
        self()
        self._memory.synchronize()
        begin = time.perf_counter()
        for _ in range(_PROBES):
            self()
        self._memory.synchronize()
        return max((time.perf_counter() - begin) / _PROBES, 1e-6)
