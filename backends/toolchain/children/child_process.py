"""Child processes that are spoken to in lines: one line asks, one line answers.

Whatever a child does, its parent goes on: a child is killed with everything that it started, and
says in its standard error why it ended. One that runs Python (its other end is
:mod:`collage.backends.toolchain.children.child_boot`) dies with the thread that started it, however
that ends.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from collage.backends.toolchain.children import child_boot

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


def python_command(
    module: str, arguments: Sequence[str] = (), *, without: Sequence[str] = ()
) -> list[str]:
    """The command line of a fresh interpreter that dies with this process and runs a module.

    Not a fork, which would inherit the state of TVM's and OpenMP's threads.

    Parameters
    ----------
    module : str
        Its ``main`` is called with the arguments and a :class:`child_boot.Line` to the parent.
    arguments : sequence of str
        What ``main`` gets.
    without : sequence of str
        Packages that are not to be found while the module is imported.

    Returns
    -------
    list of str
        For :class:`subprocess.Popen`; the child has this process's import path.

    Examples
    --------
    >>> command = python_command("my_program", ["an argument"])
    >>> command[0] == sys.executable, json.loads(command[-1])["arguments"]
    (True, ['an argument'])
    """
    settings = {
        "path": sys.path,
        "parent": os.getpid(),
        "module": module,
        "arguments": list(arguments),
        "without": list(without),
    }
    # -P: the script's folder is no place to import from.
    return [sys.executable, "-P", str(Path(child_boot.__file__)), json.dumps(settings)]


class ChildProcess:
    """A child that answers lines; use as a context manager, which kills it.

    Parameters
    ----------
    command : sequence of str
        What to run, for example :func:`python_command`.
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
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        *,
        own_group: bool = True,
        niceness: int = 0,
    ) -> None:
        self._errors: IO[bytes] = _log_file(log)
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**os.environ, **(environment or {})},
            start_new_session=own_group,
        )
        if niceness:
            # From here, for code between fork and exec is not safe beside threads. One that has
            # ended already is a zombie, whose priority may be set, too.
            own = os.getpriority(os.PRIO_PROCESS, self._process.pid)
            os.setpriority(os.PRIO_PROCESS, self._process.pid, own + niceness)
        self._kill = os.killpg if own_group else os.kill
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child, and of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self._has_ended(os.WNOHANG)

    def fileno(self) -> int:
        """The pipe that becomes readable with the answer, for ``select``."""
        return self._stdout.fileno()

    def send(self, line: bytes) -> None:
        """Hand over a line, without its end; when the child has ended, :meth:`poll` says why."""
        self._buffer = b""
        data = memoryview(line + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[self._stdin.write(data) :]

    def poll(self, wait_sec: float) -> bytes | None:
        """Its next line, without the end, or None when it is not there within ``wait_sec``.

        Raises
        ------
        ChildDiedError
            When it has ended.
        """
        if b"\n" in self._buffer:
            return self._next_line()  # It has said several at once.
        readable, _, _ = select.select([self._stdout], [], [], max(0.0, wait_sec))
        if not readable:
            return None
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            self._has_ended()
            self.kill()
            raise ChildDiedError(self._process.returncode, self.last_words())
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
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on; nothing for one that runs."""
        self._signal(signal.SIGCONT)

    def end(self, limit_sec: float) -> None:
        """Close its input, upon which it may end by itself in that time, and then :meth:`close`."""
        self._stdin.close()
        end = time.monotonic() + limit_sec
        while self.alive and time.monotonic() < end:
            time.sleep(_END_POLL_SEC)
        self.close()

    def begin_kill(self) -> None:
        """Have it and everything that it started end, and do not wait until they have.

        Who ends many begins with all of them: on a crowded machine each takes a while to go.
        """
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it and everything that it started."""
        self.begin_kill()
        self._process.wait()

    def close(self) -> None:
        """Kill it and free its pipes."""
        self.kill()
        for stream in (self._stdin, self._stdout, self._errors):
            stream.close()

    def _has_ended(self, options: int = 0) -> bool:
        """Waited for, but not taken note of: until it is killed, its number stays its own."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | options) is not None
        except ChildProcessError:
            return True  # Another thread has just killed it.

    def _signal(self, number: signal.Signals) -> None:
        # Once it was waited for, its number may be another's.
        if self._process.returncode is None:
            # Another thread may kill it at the same time.
            with contextlib.suppress(ProcessLookupError):
                self._kill(self._process.pid, number)


def _log_file(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w+b")
