"""A child process that answers requests, one JSON object per line each way.

The child's other end is :func:`serve`. A child may crash, hang or corrupt its GPU context: the
parent gets an error with the last line it printed, and starts another one.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1


class ChildError(Exception):
    """The child failed, died or hung; the message is one line.

    Attributes
    ----------
    usable : bool
        The child reported the error itself and waits for the next request.
    """

    def __init__(self, message: str, *, usable: bool = False) -> None:
        super().__init__(message)
        self.usable = usable


class ChildProcess:
    """A Python module run as a child; use as a context manager, it is killed at the end.

    On Linux the child dies with the thread that started it.

    Parameters
    ----------
    arguments : sequence of str
        The module to run and its arguments.
    log : Path
        Gets the child's standard error, and whatever libraries print to standard output.
    environment : mapping, optional
        Added to this process's environment.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                cwd=_ROOT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # its own group: stopped and killed with its children
            )
        self._buffer = b""

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the child, and of its process group."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit_sec: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises
        ------
        ChildError
            When the child reports an error, ends, or the time is up; after the latter it may still
            be at work and can only be closed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as err:
            raise ChildError(self._how_it_ended()) from err
        answer: dict[str, Any] = json.loads(self._read_line(limit_sec))
        if "error" in answer:
            raise ChildError(" ".join(str(answer["error"]).split())[:400], usable=True)
        return answer

    def pause(self) -> None:
        """Stop all its threads until :meth:`resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process group."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _read_line(self, limit_sec: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + limit_sec
        while b"\n" not in self._buffer:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left)
            if not ready:
                raise ChildError(f"no answer within {limit_sec:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise ChildError(self._how_it_ended())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"process ended with {code}: {lines[-1][:200] if lines else 'no message'}"


def claim_standard_output() -> int:
    """Keep the answers to ourselves: what libraries print goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def serve(answers: int, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The child's end: answer requests until standard input closes.

    Parameters
    ----------
    answers : int
        From :func:`claim_standard_output`.
    answer : callable
        What it raises becomes the answer's ``error``.
    """
    with os.fdopen(answers, "w", encoding="utf-8") as stream:
        for line in sys.stdin:
            try:
                reply = answer(json.loads(line))
            except Exception as err:  # noqa: BLE001 - becomes the reason in this one's row
                reply = {"error": f"{type(err).__name__}: {telling_line(str(err))}"}
            print(json.dumps(reply), file=stream, flush=True)


def telling_line(text: str) -> str:
    """TVM's messages begin with a stack trace and end with what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Traceback"):
        return lines[-1]
    return " ".join(lines)


def die_with_parent() -> None:
    """A stopped process does not notice that its parent is gone: let the kernel end it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
