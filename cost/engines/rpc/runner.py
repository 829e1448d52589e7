"""Times candidates in sessions with servers of one key, whichever the tracker gives."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Cost, CostStatus
from collage.cost.engines.rpc.sessions import RpcSession, Sessions
from collage.cost.measure.runner import PlaceAwayError, PlaceLostError, RunJob, Runner, RunResult
from collage.cost.processes.failure import WorkerFailure
from collage.cost.processes.messages import Failure, Measured, Run
from collage.cost.processes.worker_process import WorkerProcess

_WAIT_SEC = 5.0
"""For a free server: what waits longer is better done by somebody who has one."""

_BYTES_PER_SEC = 1e6
"""What every network manages."""

_RETIRE_AFTER = 200
"""Runs after which a session is renewed: libraries leave threads and memory behind."""

_HOLD_SEC = 30.0
"""A session that is older is given back when others wait for a server: coming by a new one takes a
second or two."""

_ASK_SEC = 5.0
"""Between two questions whether others wait."""

_LEAVES_ERRORS = (CostStatus.RUN_FAILED, CostStatus.OUT_OF_MEMORY)


class RpcRunner(Runner):
    """A runner at whichever server of a key is free.

    What goes wrong is the candidate's when the guard at the other end says so: it crashed there,
    took too long or too much memory. Any other end of a session says nothing about it: it is timed
    elsewhere.

    Parameters
    ----------
    sessions : Sessions
        Where to get one.

    Attributes
    ----------
    is_lost : bool
        Whether there was no server to be had, or one that went away: another runner is to be asked.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.is_lost = False
        self._sessions = sessions
        self._session: RpcSession | None = None
        self._worker: WorkerProcess | None = None
        self._runs = 0
        self._begun = self._used = self._asked = 0.0

    def run(self, job: RunJob) -> RunResult:
        try:
            return self._run(job)
        except PlaceLostError:
            self.is_lost = True
            self.close()  # Whoever is asked instead has a process of its own.
            raise

    def _run(self, job: RunJob) -> RunResult:
        session = self._ready()
        begin = time.perf_counter()
        first = self._runs == 0
        result = self._ask(session, job)
        if result.cost.status is CostStatus.CRASHED and not first:
            # An earlier candidate may have corrupted the process; only a fresh one can accuse.
            result = self._ask(self._ready(), job)
        return replace(result, run_sec=time.perf_counter() - begin)

    def warm_up(self) -> None:
        """Get a session now, if there is a server."""
        with suppress(PlaceAwayError):
            self._ready()

    def close(self) -> None:
        self._session = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ready(self) -> RpcSession:
        if self._session is not None and self._is_spent():
            self.close()
        if self._session is None:
            worker, self._worker = self._worker, None
            self._session = self._sessions.take(_WAIT_SEC, worker)
            self._worker, self._runs = self._session.worker, 0
            self._begun = self._used = self._asked = time.monotonic()
        return self._session

    def _is_spent(self) -> bool:
        """Whether the session is to be renewed, so that it does not end in the middle of a run, or
        others have their turn."""
        assert self._session is not None
        options, now = self._sessions.options, time.monotonic()
        age = now - self._begun
        if (
            self._session.worker.requests >= _RETIRE_AFTER
            or now - self._used > options.idle_sec / 2
        ):
            return True
        if age + 2 * self._sessions.run_limit_sec > options.session_timeout_sec:
            return True
        if age < _HOLD_SEC or now - self._asked < _ASK_SEC:
            return False
        self._asked = now
        try:
            return self._sessions.tracker.summary(options.key).pending > 0
        except MeasurementError:
            return False  # A tracker that is away does no harm to a session.

    def _ask(self, session: RpcSession, job: RunJob) -> RunResult:
        request = Run(job.library, (job.sample,), self._sessions.work.config)
        limit_sec = self._sessions.run_limit_sec + transfer_sec(job)
        self._runs += 1
        try:
            session.worker.send(request, limit_sec)
            answer = session.worker.receive(Measured)
        except (WorkerFailure, MeasurementError) as err:
            self.close()
            raise PlaceLostError(f"{session.grant.address}: the session {err}") from err
        except BaseException:
            # An interrupt or a deadline: the answer under way must not meet the next request.
            self.close()
            raise
        self._used = time.monotonic()
        if isinstance(answer, Measured):
            return RunResult(
                Cost.of_samples(answer.samples_sec),
                answer.largest_error,
                answer.first_call_sec,
                clocks=answer.clocks,
            )
        if answer.replace:
            self._session = None  # Its process here is as good as new.
        elif self._leaves_errors(answer):
            self.close()
        if answer.status is CostStatus.UNKNOWN:
            raise PlaceLostError(answer.reason)
        return RunResult(Cost(answer.status, reason=answer.reason))

    def _leaves_errors(self, failure: Failure) -> bool:
        """Whether the next candidate would get the blame: a context keeps an error until asked."""
        return self._sessions.work.policy.has_context and failure.status in _LEAVES_ERRORS


def transfer_sec(job: RunJob) -> float:
    """What copying a library, what it needs and its data there and back may take."""
    beside = (job.library.parent / name for name in ("lib", "weights"))
    needed = [path for folder in beside if folder.is_dir() for path in folder.iterdir()]
    files = [job.library, *needed, *(path for path in job.sample.rglob("*") if path.is_file())]
    return sum(_size(path) for path in files) / _BYTES_PER_SEC


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
