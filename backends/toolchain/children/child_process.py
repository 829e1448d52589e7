"""Child processes that are spoken to in lines: one line asks, one line answers.

Whatever a child does, its parent goes on: a child is killed with everything that it started, and
says in its standard error why it ended. One that runs Python (its other end is
:mod:`collage.backends.toolchain.children.child_boot`) dies with the thread that started it, however
that ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from collage.backends.toolchain.children.fork_server import ForkServers
from collage.backends.toolchain.children.processes import HeldProcess, SpawnedProcess
from collage.backends.toolchain.children.python_program import PythonProgram

_LAST_WORDS = 4096
"""Bytes at the end of a child's standard error in which its last line is looked for."""

_END_POLL_SEC = 0.01
_LONG_SEC = 3600.0


class ChildDiedError(Exception):
    """A child ended instead of answering.

    Attributes
    ----------
    status : int
        Its exit status; negative for the signal that ended it.
    last_words : str
        The last line of its standard error, shortened; empty when there is none.
    """

    def __init__(self, status: int, last_words: str) -> None:
        super().__init__(f"ended with {status}: {last_words or 'no message'}")
        self.status = status
        self.last_words = last_words


class ChildTimeoutError(Exception):
    """A child gave no answer in time; it may still be at work, and can only be killed."""


class ChildProcess:
    """A child that answers lines; use as a context manager, which kills it.

    Parameters
    ----------
    program : sequence of str or PythonProgram
        The command to run, or what a fresh interpreter runs.
    environment : mapping of str to str, optional
        Added to this process's.
    log : Path, optional
        Gets its standard error; by default a file that goes with the child.
    own_group : bool
        Whether it leads a process group: killing it reaches what it started, and a Ctrl-C only
        the parent. Without, whoever kills the parent's group kills it too, which a program that
        does not watch its parent needs.
    niceness : int
        By how much it, with whatever it starts, leaves the cores to others (setpriority(2)).
    servers : ForkServers, optional
        A program of Python's is a fork of one of these where the system can do that, with a process
        group of its own: it finds its module imported.

    Examples
    --------
    >>> with ChildProcess(["cat"]) as child:
    ...     child.send(b"a line")
    ...     child.receive(limit_sec=10)
    b'a line'
    >>> with ChildProcess(["false"]) as child:
    ...     child.receive(limit_sec=10)
    Traceback (most recent call last):
        ...
    collage.backends.toolchain.children.child_process.ChildDiedError: ended with 1: no message
    """

    def __init__(
        self,
        program: Sequence[str] | PythonProgram,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        *,
        own_group: bool = True,
        niceness: int = 0,
        servers: ForkServers | None = None,
    ) -> None:
        self._buffer = b""
        self._errors: IO[bytes] = _log_file(log)
        whole = {**os.environ, **(environment or {})}
        self._process: HeldProcess
        if isinstance(program, PythonProgram):
            if servers is not None and servers.supported:
                self._process = servers.fork(program, whole, self._errors, niceness)
                return
            program = program.command()
        self._process = SpawnedProcess(
            program, whole, self._errors, own_group=own_group, niceness=niceness
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child, and of its process group; waits until there is one."""
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Whether there is a process yet."""
        return self._process.is_started

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self._process.has_ended(wait=False)

    def fileno(self) -> int:
        """The pipe that becomes readable with the answer, for ``select``."""
        return self._process.stdout.fileno()

    def send(self, line: bytes) -> None:
        """Hand over a line, without its end; when the child has ended, :meth:`poll` says why."""
        self._buffer = b""
        data = memoryview(line + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[self._process.stdin.write(data) :]

    def poll(self, wait_sec: float) -> bytes | None:
        """Its next line, without the end, or None when it is not there within ``wait_sec``.

        Raises
        ------
        ChildDiedError
            When it has ended.
        """
        if b"\n" in self._buffer:
            return self._next_line()  # It has said several at once.
        readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, wait_sec))
        if not readable:
            return None
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            self._process.has_ended(wait=True)
            self.begin_kill()
            raise ChildDiedError(self._process.wait(), self.last_words())
        self._buffer += chunk
        return self._next_line()

    def _next_line(self) -> bytes | None:
        """What was read up to the end of a line, if there is one."""
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        return line

    def receive(self, limit_sec: float) -> bytes:
        """Its next line, waited for.

        Raises
        ------
        ChildDiedError
            When it ends instead.
        ChildTimeoutError
            When that takes too long; it is left as it is.
        """
        end = time.monotonic() + limit_sec
        while (left := end - time.monotonic()) > 0:
            line = self.poll(left)
            if line is not None:
                return line
        raise ChildTimeoutError(f"gave no answer within {limit_sec:g} s")

    def wait(self) -> int:
        """Pass over what it says until it ends; its exit status, negative for a signal."""
        while True:
            try:
                self.poll(_LONG_SEC)
            except ChildDiedError as err:
                return err.status

    def last_words(self) -> str:
        """The last line of its standard error, shortened."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""

    def suspend(self) -> None:
        """Stop it where it stands, its threads too; it keeps its memory."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on; nothing for one that runs."""
        self._process.signal(signal.SIGCONT)

    def end(self, limit_sec: float) -> None:
        """Close its input, upon which it may end by itself in that time, and then :meth:`close`."""
        self._process.stdin.close()
        end = time.monotonic() + limit_sec
        while self.alive and time.monotonic() < end:
            time.sleep(_END_POLL_SEC)
        self.close()

    def begin_kill(self) -> None:
        """Have it and everything that it started end, and do not wait until they have.

        Who ends many begins with all of them: on a crowded machine each takes a while to go.
        """
        self._process.signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it and everything that it started."""
        self.begin_kill()
        self._process.wait()

    def close(self) -> None:
        """Kill it and free its pipes."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            stream.close()
        self._process.release()


def _log_file(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w+b")
