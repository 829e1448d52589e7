"""How a worker process failed: by what its request did, or by somebody else."""

from __future__ import annotations

import signal

from collage.backends.toolchain.children.child_process import ChildDiedError
from collage.cost.base import CostStatus
from collage.cost.processes.kills import FROM_OUTSIDE, MemoryPressure


class WorkerFailure(Exception):
    """The worker did not answer; it is dead now.

    Attributes
    ----------
    status : CostStatus
        ``CRASHED``, ``TIMED_OUT`` or ``OUT_OF_MEMORY``; ``UNKNOWN`` when nothing that the request
        did is known to have ended it.
    reason : str
        One line.
    was_killed : bool
        Whether somebody else ended it: the system, short of memory, or anybody. How often that
        has to happen, :class:`~collage.cost.processes.kills.Kills` says.
    """

    def __init__(self, status: CostStatus, reason: str, *, was_killed: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.was_killed = was_killed


def failure_of(
    death: ChildDiedError, pressure: MemoryPressure, used_bytes: int, limit_bytes: int
) -> WorkerFailure:
    """What the death of a worker says of the request that it was at.

    Parameters
    ----------
    death : ChildDiedError
        How it ended, and what it said last.
    pressure : MemoryPressure
        Of when it was started.
    used_bytes, limit_bytes : int
        What the request took of memory, and was allowed to.

    Returns
    -------
    WorkerFailure
        Held against the request only where nobody else ended the worker.
    """
    status, last = death.status, death.last_words
    if status == -signal.SIGKILL and pressure.accuses(used_bytes, limit_bytes):
        return WorkerFailure(
            CostStatus.OUT_OF_MEMORY,
            f"was killed by the system, with {used_bytes >> 20} MiB of memory",
            was_killed=True,
        )
    if -status in FROM_OUTSIDE:
        name = signal.Signals(-status).name
        return WorkerFailure(
            CostStatus.UNKNOWN, f"was killed by somebody ({name})", was_killed=True
        )
    if "bad_alloc" in last or "MemoryError" in last:
        return WorkerFailure(CostStatus.OUT_OF_MEMORY, f"ran out of memory: {last}")
    if status < 0:
        how = f"died of {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    else:
        how = f"ended by itself with exit status {status}"
    return WorkerFailure(CostStatus.CRASHED, f"{how}: {last}" if last else how)
