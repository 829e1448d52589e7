"""A worker process: one request and one answer at a time, as JSON lines over pipes.

Containment: whatever the child does, the parent goes on. It is killed with everything it started
when it takes too long or too much memory, and it dies with its parent, however that ends.
Nothing is ever unpickled; a child is a fresh interpreter, not a fork, for a fork would inherit the
state of TVM's and OpenMP's threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import psutil

from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus

_POLL_SEC = 0.02
"""How often a child's memory is looked at: 30 microseconds of work each."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from collage.cost.worker.main import main; main(json.loads(sys.argv[2]))"
)


class WorkerFailure(Exception):
    """The worker did not answer; it is dead now.

    Attributes
    ----------
    status : CostStatus
        ``CRASHED``, ``TIMED_OUT`` or ``OUT_OF_MEMORY``.
    reason : str
        One line.
    """

    def __init__(self, status: CostStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class WorkerProcess:
    """A child interpreter that answers requests.

    Parameters
    ----------
    plugins : sequence of str
        What the child imports first, see :mod:`collage.cost.processes.plugins`.
    memory_limit_bytes : int
        What one request may add to the child's resident memory. Resident memory is watched
        from outside rather than limited by ``RLIMIT_AS``: address space counts mapped libraries
        and thread stacks that nobody touches, and a child that hits such a limit dies in ways that
        look like a crash. ``RLIMIT_DATA``, at twice the limit, stops a child that is faster
        than the watch; not on CUDA, whose driver maps as much as the device has.
    device : str
        Kind of the device that the child may use, ``cpu`` or ``cuda``.
    open_device : bool
        Begin to use it before the first request, so that no request is charged for that.
    blas_threads : int, optional
        Threads of numpy's matrix products, where many children share the cores.
    """

    def __init__(
        self,
        plugins: Sequence[str] = (),
        *,
        memory_limit_bytes: int,
        device: str = "cpu",
        open_device: bool = False,
        blas_threads: int | None = None,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        settings = {
            "parent": os.getpid(),
            "plugins": list(plugins),
            "data_limit_bytes": 2 * memory_limit_bytes if device == "cpu" else None,
            "device": device,
            "open_device": open_device,
            "blas_threads": blas_threads,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # A session of its own: a Ctrl-C reaches only the parent, and killing reaches all.
            start_new_session=True,
        )
        self._watch = psutil.Process(self._process.pid)
        self._buffer = b""
        self._started = False
        self._deadline = 0.0
        self._timeout_sec = 0.0
        self._left_sec = 0.0
        self._baseline_bytes = 0
        self.requests = 0
        self.idle = True

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """Memory that the child holds now."""
        try:
            return int(self._watch.memory_info().rss)
        except psutil.Error:
            return 0

    def fileno(self) -> int:
        """The pipe that becomes readable with the answer, for ``select``."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def wait_until_ready(self, timeout_sec: float = 120.0) -> None:
        """Wait for the child to have imported everything.

        Raises
        ------
        MeasurementError
            When it cannot start: nothing can be measured then.
        """
        if self._started:
            return
        self._timeout_sec = timeout_sec
        self._deadline = time.monotonic() + timeout_sec
        try:
            answer = self.receive()
        except WorkerFailure as err:
            raise MeasurementError(f"a measuring process cannot start: {err.reason}") from err
        if not answer.get("ready"):
            raise MeasurementError(f"a measuring process cannot start: {answer.get('reason')}")
        self._started = True

    def send(self, request: dict[str, Any], timeout_sec: float) -> None:
        """Hand over a request; :meth:`receive` or :meth:`poll` gets the answer."""
        self.wait_until_ready()
        self._baseline_bytes = self.resident_bytes
        self._timeout_sec = timeout_sec
        self.requests += 1
        self._hand_over(request, timeout_sec)

    def go_on(self, request: dict[str, Any]) -> None:
        """Hand over the next step of what the last request began.

        Limits of time and memory are for all steps together; the time since the last answer does
        not count.
        """
        self._hand_over(request, self._left_sec)

    def _hand_over(self, request: dict[str, Any], limit_sec: float) -> None:
        self._deadline = time.monotonic() + limit_sec
        self._buffer = b""
        self.idle = False
        assert self._process.stdin is not None
        # A dead child's pipe breaks here; its death is reported by the next poll.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Wait for the answer.

        Raises
        ------
        WorkerFailure
            When the child dies, takes too long or too much memory.
        """
        while True:
            answer = self.poll(_POLL_SEC)
            if answer is not None:
                return answer

    def poll(self, wait_sec: float) -> dict[str, Any] | None:
        """The answer if it is there within ``wait_sec``, else None.

        Raises
        ------
        WorkerFailure
            As :meth:`receive`.
        """
        readable, _, _ = select.select([self.fileno()], [], [], wait_sec)
        if readable:
            chunk = os.read(self.fileno(), 1 << 16)
            if not chunk:
                raise self._death()
            self._buffer += chunk
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                answer: dict[str, Any] = json.loads(line)
                self._left_sec = self._deadline - time.monotonic()
                self.idle = True
                return answer
            return None
        if self._started:
            used = self.resident_bytes - self._baseline_bytes
            if used > self._memory_limit_bytes:
                self.kill()
                raise WorkerFailure(
                    CostStatus.OUT_OF_MEMORY,
                    f"took more than {self._memory_limit_bytes >> 20} MiB of memory",
                )
        if time.monotonic() > self._deadline:
            self.kill()
            reason = f"gave no answer within {self._timeout_sec:g} s"
            raise WorkerFailure(CostStatus.TIMED_OUT, reason)
        return None

    def _death(self) -> WorkerFailure:
        code = self._process.wait()
        self.kill()
        last = self._last_words()
        if code == -signal.SIGKILL:
            # We did not kill it: on Linux that is the kernel, out of memory.
            return WorkerFailure(CostStatus.OUT_OF_MEMORY, "was killed, most likely for its memory")
        if "bad_alloc" in last or "MemoryError" in last:
            return WorkerFailure(CostStatus.OUT_OF_MEMORY, f"ran out of memory: {last}")
        if code < 0:
            how = f"died of {signal.Signals(-code).name} ({signal.strsignal(-code)})"
        else:
            how = f"ended by itself with exit status {code}"
        return WorkerFailure(CostStatus.CRASHED, f"{how}: {last}" if last else how)

    def _last_words(self) -> str:
        """The last line that the child wrote to its standard error."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - 4096))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def suspend(self) -> None:
        """Stop the child where it stands, its threads too; it keeps its memory."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended child go on; nothing for one that runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the child and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Kill the child and free its pipes."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
