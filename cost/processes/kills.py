"""Who killed a process: the system, for want of memory, or somebody whose reasons nobody knows.

A signal does not say who sent it. Linux counts the processes that it killed to make room, though,
for every group of processes that shares a limit of memory (cgroups) and for the machine as a whole.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import psutil

from collage.cost.base import CostStatus

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Whoever sends these is no candidate: the system, short of memory, or a person."""

_MOST_KILLS = 5
"""Processes that one request may lose to others, whoever they are."""

_FOR_MEMORY = 2
"""After which the system has killed it for its own memory, and not for somebody else's."""

_CONSIDERABLE = 4
"""Whoever holds less than the fourth part of what there is has not used it up."""

_COUNTS = ("memory.events", "memory.oom_control")
_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Of version 2 of cgroups, and of version 1."""


@dataclass(frozen=True)
class MemoryPressure:
    """How often the system had made room by killing, where a process lives, at some moment.

    Attributes
    ----------
    counter : Path or None
        What counts it; None where nothing does.
    kills : int
        As it stood then.
    memory_bytes : int
        What all processes that share the process's limits may hold together.

    Examples
    --------
    >>> import os
    >>> before = MemoryPressure.of(os.getpid())
    >>> before.made_room()  # None where the system does not count.
    False
    """

    counter: Path | None
    kills: int
    memory_bytes: int

    @classmethod
    def of(
        cls, pid: int, proc: Path = Path("/proc"), mounted: Path = Path("/sys/fs/cgroup")
    ) -> MemoryPressure:
        """That of a process now.

        Parameters
        ----------
        pid : int
            Of the process.
        proc, mounted : Path
            Where the system shows processes and cgroups.

        Returns
        -------
        MemoryPressure
            Of its own cgroup, which counts whichever limit was reached; of the machine where it has
            none.
        """
        most = int(psutil.virtual_memory().total)
        for folder, root in _cgroups(pid, proc, mounted):
            for counter in (folder / name for name in _COUNTS):
                kills = _count(counter)
                if kills is not None:
                    above = [one for one in folder.parents if one.is_relative_to(root)]
                    limits = (_limit(one / n) for one in (folder, *above) for n in _LIMITS)
                    return cls(counter, kills, min([most, *(n for n in limits if n is not None)]))
        kills = _count(proc / "vmstat")
        return cls(proc / "vmstat" if kills is not None else None, kills or 0, most)

    def made_room(self) -> bool | None:
        """Whether the system has killed something since, for want of memory.

        Returns
        -------
        bool or None
            None where it does not say.
        """
        now = None if self.counter is None else _count(self.counter)
        return None if now is None else now > self.kills

    def accuses(self, used_bytes: int, limit_bytes: int) -> bool:
        """Whether a process that was killed was so for memory that it had taken itself.

        Parameters
        ----------
        used_bytes : int
            What its request had added when that was last looked at.
        limit_bytes : int
            What it might have added.

        Returns
        -------
        bool
            False unless the system says that it made room; where it says nothing, memory that was
            all but used up is evidence enough.
        """
        within = min(limit_bytes, self.memory_bytes)
        made_room = self.made_room()
        if made_room is None:
            return 2 * used_bytes > within
        return made_room and _CONSIDERABLE * used_bytes > within


def _cgroups(pid: int, proc: Path, mounted: Path) -> list[tuple[Path, Path]]:
    """Folders that may be a process's cgroup for memory, each with the root that it is below."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            root = mounted / "memory" if controllers else mounted
            # In a container the path may be the host's, and the root is the container's own.
            found += [(root / path.lstrip("/"), root), (root, root)]
    return found


def _count(file: Path) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    words = next((line.split() for line in lines if line.startswith("oom_kill ")), None)
    return int(words[1]) if words else None


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is none.


@dataclass
class Kills:
    """How often others killed the process that was at one request.

    Attributes
    ----------
    total : int
        Whoever did.
    for_memory : int
        The system, for memory of the request's own.

    Examples
    --------
    >>> kills = Kills()
    >>> [kills.is_asked_again(CostStatus.UNKNOWN) for _ in range(5)]
    [True, True, True, True, False]
    >>> status, reason = kills.verdict("it was killed")
    >>> status, reason[:28]
    (<CostStatus.UNKNOWN: 'unknown'>, '5 workers were lost with it,')
    """

    total: int = 0
    for_memory: int = 0

    def is_asked_again(self, status: CostStatus) -> bool:
        """Note one more, and say whether the request is worth another process.

        Parameters
        ----------
        status : CostStatus
            ``OUT_OF_MEMORY`` when the system accuses the request, else ``UNKNOWN``.
        """
        self.total += 1
        self.for_memory += status is CostStatus.OUT_OF_MEMORY
        return self.for_memory < _FOR_MEMORY and self.total < _MOST_KILLS

    def verdict(self, reason: str) -> tuple[CostStatus, str]:
        """What that says of the request: unless it ran out of memory, nothing.

        Parameters
        ----------
        reason : str
            What became of the last process, in one line.

        Returns
        -------
        tuple of (CostStatus, str)
            ``OUT_OF_MEMORY`` or ``UNKNOWN``, and why, in one line.
        """
        if self.for_memory >= _FOR_MEMORY:
            return CostStatus.OUT_OF_MEMORY, reason
        words = f"{self.total} workers were lost with it, the last one because {reason}"
        return CostStatus.UNKNOWN, words
