"""A worker process: answers one request at a time, and is contained whatever it does.

It is killed with all that it started when it takes too long or too much memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import psutil

from collage.backends.contract.errors import MeasurementError, OutOfTimeError, ProtocolError
from collage.backends.toolchain.children.child_process import ChildDiedError, ChildProcess
from collage.backends.toolchain.children.fork_server import fork_servers
from collage.cost.base import CostStatus
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, DevicePolicy
from collage.cost.processes.failure import WorkerFailure, failure_of
from collage.cost.processes.kills import MemoryPressure
from collage.cost.processes.messages import A, Failure, Request, Unreadable
from collage.cost.processes.protocol import (
    NotReady,
    Ready,
    Settings,
    decode,
    decode_handshake,
    encode,
)
from collage.cost.processes.worker_program import worker_program

_POLL_SEC = 0.02
"""How often a child's memory is looked at: 30 microseconds of work each."""

_STARTS = 5
"""After which it is the system that has no memory for it, most likely."""


class WorkerProcess:
    """A child interpreter that answers requests.

    One that somebody else kills before it is ready is replaced: it had not been asked anything, and
    whoever killed it may have meant another one.

    Parameters
    ----------
    plugins : sequence of str
        What the child imports first, see :mod:`collage.cost.processes.plugins`.
    memory_limit_bytes : int
        What one request may add to the child's resident memory. Resident memory is watched
        from outside rather than limited by ``RLIMIT_AS``: address space counts mapped libraries
        and thread stacks that nobody touches, and a child that hits such a limit dies in ways that
        look like a crash. ``RLIMIT_DATA``, at twice the limit, stops a child that is faster
        than the watch; not where a driver maps as much as the device has.
    policy : DevicePolicy, optional
        Of the device that the child may use.
    open_device : bool
        Begin to use it before the first request, so that no request is charged for that.
    blas_threads : int, optional
        Threads of numpy's matrix products, where several children share the cores.
    environment : mapping of str to str, optional
        Added to the child's: which of several devices it is to see.
    deadline : Deadline, optional
        A child from which an answer is awaited then is killed.
    niceness : int
        By how much it leaves the cores to others.

    Examples
    --------
    >>> from pathlib import Path
    >>> from collage.cost import MeasureConfig
    >>> from collage.cost.processes.messages import Measured, Run
    >>> library, sample = Path("model.so"), Path("sample")
    >>> worker = WorkerProcess(memory_limit_bytes=1 << 30)
    >>> worker.send(Run(library, (sample,), config=MeasureConfig()), 60.0)
    >>> worker.receive(Measured)  # Nothing was built.
    Failure(..., status=<CostStatus.RUN_FAILED: 'run_failed'>, reason=...)
    >>> worker.close()
    """

    def __init__(
        self,
        plugins: Sequence[str] = (),
        *,
        memory_limit_bytes: int,
        policy: DevicePolicy = CPU_POLICY,
        open_device: bool = False,
        blas_threads: int | None = None,
        environment: Mapping[str, str] | None = None,
        deadline: Deadline = NEVER,
        niceness: int = 0,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        settings = Settings(
            tuple(plugins),
            policy.session,
            policy.has_context,
            open_device,
            None if policy.has_context else 2 * memory_limit_bytes,
            blas_threads,
        )
        self._start = partial(
            ChildProcess,
            worker_program(settings),
            dict(environment or {}),
            niceness=niceness,
            servers=fork_servers(),
        )
        self._process = self._start()
        self._watch: psutil.Process | None = None
        self._unwanted = False
        self._replacing = threading.Lock()
        self._outer_deadline = deadline
        self._started = False
        self._deadline = 0.0
        self._timeout_sec = 0.0
        self._left_sec = 0.0
        self._baseline_bytes = self._used_bytes = 0
        self._pressure = MemoryPressure.of(os.getpid())
        self.requests = 0
        self.idle = True

    @property
    def alive(self) -> bool:
        """Whether the child has not ended."""
        return self._process.alive

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """Memory that the child holds now."""
        return sum(self._held())

    @property
    def own_bytes(self) -> int:
        """Memory that the child holds now, without what is in files too."""
        return self._held()[0]

    def _held(self) -> tuple[int, int]:
        """What is its own, and the rest, where the system tells them apart."""
        with contextlib.suppress(psutil.Error):
            if self._watch is not None:
                held = self._watch.memory_info()
                in_files = int(getattr(held, "shared", 0))
                return int(held.rss) - in_files, in_files
        return 0, 0

    def fileno(self) -> int:
        """The pipe that becomes readable with the answer, for ``select``."""
        return self._process.fileno()

    def wait_until_ready(self, timeout_sec: float = 120.0) -> None:
        """Wait for the child to have imported everything.

        Raises
        ------
        MeasurementError
            When it cannot start: nothing can be measured then.
        ProtocolError
            When it is of another version.
        OutOfTimeError
            When the deadline comes first.
        """
        if self._started:
            return
        self._check_time()
        self._timeout_sec = timeout_sec
        for is_last in [*[False] * (_STARTS - 1), True]:
            self._deadline = time.monotonic() + timeout_sec
            try:
                answer: Ready | NotReady = decode_handshake(self._receive_line(), Ready | NotReady)
                break
            except WorkerFailure as err:
                if is_last or not err.was_killed or not self._replace():
                    raise MeasurementError(
                        f"a measuring process cannot start: {err.reason}"
                    ) from err
        if isinstance(answer, NotReady):
            raise MeasurementError(f"a measuring process cannot start: {answer.reason}")
        self._started = True

    def _replace(self) -> bool:
        """Start another child, unless it was this process that wanted none any longer."""
        with self._replacing:
            if not self._unwanted:
                self._process.close()
                self._process, self._watch = self._start(), None
            return not self._unwanted

    def send(self, request: Request, timeout_sec: float) -> None:
        """Hand over a request; :meth:`receive` or :meth:`poll` gets the answer.

        Parameters
        ----------
        request : Request
            What to do.
        timeout_sec : float
            Wall time for it, and for all of its further steps (see :meth:`go_on`) together.

        Raises
        ------
        MeasurementError, ProtocolError, OutOfTimeError
            As :meth:`wait_until_ready`.
        """
        self.wait_until_ready()
        self._baseline_bytes, self._used_bytes = self.resident_bytes, 0
        self._pressure = MemoryPressure.of(self.pid)
        self._timeout_sec = timeout_sec
        self.requests += 1
        self._hand_over(request, timeout_sec)

    def go_on(self, request: Request) -> None:
        """Hand over the next step of what the last request began.

        Limits of time and memory are for all steps together; the time since the last answer does
        not count.
        """
        self._hand_over(request, self._left_sec)

    def _hand_over(self, request: Request, limit_sec: float) -> None:
        self._deadline = time.monotonic() + limit_sec
        self.idle = False
        self._process.send(encode(request))

    def receive(self, kind: type[A]) -> A | Failure:
        """Wait for the answer, which is of this kind.

        Raises
        ------
        WorkerFailure
            When the child dies, takes too long or too much memory.
        ProtocolError
            When it answers something else.
        OutOfTimeError
            When the deadline comes first; the child is dead then.
        """
        return self._read(self._receive_line(), kind)

    def poll(self, wait_sec: float, kind: type[A]) -> A | Failure | None:
        """The answer if it is there soon, else None.

        Parameters
        ----------
        wait_sec : float
            How long to wait for it.
        kind : type
            What it must be.

        Returns
        -------
        A | Failure or None
            None while it has not come; a failure is what the process says went wrong.

        Raises
        ------
        WorkerFailure, ProtocolError, OutOfTimeError
            As :meth:`receive`.
        """
        line = self._poll_line(wait_sec)
        return None if line is None else self._read(line, kind)

    def _read(self, line: bytes, kind: type[A]) -> A | Failure:
        answer: A | Failure | Unreadable = decode(line, kind | Failure | Unreadable)
        if isinstance(answer, Unreadable):
            raise ProtocolError(answer.reason)
        return answer

    def _receive_line(self) -> bytes:
        while (line := self._poll_line(_POLL_SEC)) is None:
            pass
        return line

    def _poll_line(self, wait_sec: float) -> bytes | None:
        try:
            line = self._process.poll(wait_sec)
        except ChildDiedError as err:
            raise failure_of(
                err, self._pressure, self._used_bytes, self._memory_limit_bytes
            ) from err
        if self._watch is None and self._process.is_started:
            self._look_at(self._process.pid)
        if line is not None:
            self._left_sec = self._deadline - time.monotonic()
            self.idle = True
            return line
        self._check_time()
        if self._started:
            if held := self.resident_bytes:  # It has none once it is killed.
                self._used_bytes = held - self._baseline_bytes
            if self._used_bytes > self._memory_limit_bytes:
                self.kill()
                reason = f"took more than {self._memory_limit_bytes >> 20} MiB of memory"
                raise WorkerFailure(CostStatus.OUT_OF_MEMORY, reason)
        if time.monotonic() > self._deadline:
            was_stopped = self._is_stopped()
            self.kill()
            if was_stopped:
                raise WorkerFailure(CostStatus.UNKNOWN, "was stopped by somebody", was_killed=True)
            reason = f"gave no answer within {self._timeout_sec:g} s"
            raise WorkerFailure(CostStatus.TIMED_OUT, reason)
        return None

    def _check_time(self) -> None:
        if self._outer_deadline.is_up:
            self.kill()
            raise OutOfTimeError("the time is spent")

    def _look_at(self, pid: int) -> None:
        """From now on its memory, and what ends it, are watched."""
        with contextlib.suppress(psutil.Error):  # It has ended, which the next look will tell.
            self._watch = psutil.Process(pid)
            self._pressure = MemoryPressure.of(pid)

    def _is_stopped(self) -> bool:
        with contextlib.suppress(psutil.Error):
            return self._watch is not None and self._watch.status() == psutil.STATUS_STOPPED
        return False

    def suspend(self) -> None:
        """Stop the child where it stands, its threads too; it keeps its memory."""
        self._process.suspend()

    def resume(self) -> None:
        """Let a suspended child go on; nothing for one that runs."""
        self._process.resume()

    def kill(self) -> None:
        """End the child and everything it started."""
        self._end(ChildProcess.kill)

    def begin_close(self) -> None:
        """Have the child killed, and do not wait for that."""
        self._end(ChildProcess.begin_kill)

    def close(self) -> None:
        """Kill the child and free its pipes."""
        self._end(ChildProcess.close)

    def _end(self, end: Callable[[ChildProcess], None]) -> None:
        with self._replacing:
            self._unwanted = True
            end(self._process)
