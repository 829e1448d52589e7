"""What the processors do besides what is measured: read, never set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from collage.cost.contest.rounds import Load

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of a processor's line: user, nice, system, irq, softirq, steal (proc(5))."""
_IDLE = (3, 4)
"""Idle, and idle while a disk is waited for."""


@dataclass(frozen=True)
class _Times:
    """Seconds since the machine was started, of the processors that this process may use."""

    busy: float
    idle: float
    own: float


class LoadMeter:
    """How busy the processors were with what others do, from one moment to another.

    Where there is one processor, processes are timed by what each had of it
    (:class:`collage.cost.worker.session.CpuSession`): that one waited for it does not count.

    Where the system does not tell, as anywhere but on Linux, nobody else was there.

    Parameters
    ----------
    pids : iterable of int
        Processes that are measured, besides this one.

    Examples
    --------
    >>> meter = LoadMeter([])
    >>> load = meter.read()
    >>> 0.0 <= load.others <= 1.0 and 0.0 <= load.idle <= 1.0
    True
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = [os.getpid(), *pids]
        self._since = self._now()

    def read(self) -> Load:
        """The load since the last time that this was called."""
        before, now = self._since, self._now()
        self._since = now
        busy, idle = now.busy - before.busy, now.idle - before.idle
        if busy + idle <= 0.0:
            return Load(others=0.0, idle=1.0)
        others = min(max(busy - (now.own - before.own), 0.0), busy)
        several = len(os.sched_getaffinity(0)) > 1
        return Load(others / (busy + idle), idle / (busy + idle), waiting_counts=several)

    def _now(self) -> _Times:
        if not _STAT.exists():
            return _Times(0.0, 0.0, 0.0)
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = (line.split() for line in _STAT.read_text(encoding="ascii").splitlines())
        columns = [list(map(int, rest)) for name, *rest in lines if name in names]
        tick = os.sysconf("SC_CLK_TCK")
        busy = sum(column[i] for column in columns for i in _BUSY if i < len(column))
        idle = sum(column[i] for column in columns for i in _IDLE if i < len(column))
        return _Times(busy / tick, idle / tick, sum(map(_own_sec, self._pids)))


def _own_sec(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0  # Whoever died was not the machine's disturbance; its round is not complete.
    return float(times.user + times.system)
