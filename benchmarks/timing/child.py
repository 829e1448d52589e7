"""A child process that answers requests, one JSON object per line each way.

The child's other end is :func:`serve`. A child may crash, hang or corrupt its GPU context: the
parent gets an error with the last line it printed, and starts another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from collage.backends.contract.errors import telling_line
from collage.backends.toolchain.children.child_boot import Line
from collage.backends.toolchain.children.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
)
from collage.backends.toolchain.children.python_program import PythonProgram

OPENMP_DEFAULT = {"GOMP_SPINCOUNT": "300000"}
"""What GNU's OpenMP does where nothing is said. A child imports a module of ours, which sets it; a
peer is to run as its users run it."""

_WORDS = 500
"""Of a child's last line: enough for where it was."""


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


class JsonChild(ChildProcess):
    """A Python module run as a child; use as a context manager, it is killed at the end.

    Parameters
    ----------
    module : str
        Its ``main`` calls :func:`serve`.
    arguments : sequence of str
        For its ``main``.
    log : Path
        Gets the child's standard error, and whatever libraries print to standard output.
    environment : mapping, optional
        Added to this process's environment.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(PythonProgram(module, tuple(arguments)), environment, log)
        self._log = log

    def ask(self, request: Mapping[str, Any], limit_sec: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises
        ------
        ChildError
            When the child reports an error, ends, or the time is up; after the latter it may still
            be at work and can only be closed.
        """
        self.send(json.dumps(request).encode())
        try:
            answer: dict[str, Any] = json.loads(self.receive(limit_sec))
        except (ChildDiedError, ChildTimeoutError) as err:
            raise ChildError(f"process {err}{self._last_words()}") from err
        if "error" in answer:
            raise ChildError(str(answer["error"])[:400], usable=True)
        return answer

    def _last_words(self) -> str:
        """What the child was at when it was last heard of."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"; its last words: {lines[-1][:_WORDS]}" if lines else ""


class ReplaceableChild:
    """A child that is replaced by a fresh one when it broke or grew old; a context manager.

    Parameters
    ----------
    module, arguments, log, environment
        As :class:`JsonChild` takes them.
    most : int, optional
        Requests that one child answers; without, there is no limit.
    after_any : bool
        Replace it also after an error that it reported itself.
    stopped_between : bool
        It is stopped while nobody asks it anything: it could still use the processor.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        most: int | None = None,
        after_any: bool = False,
        stopped_between: bool = False,
    ) -> None:
        self._start = partial(JsonChild, module, arguments, log, environment)
        self._most, self._after_any, self._stopped = most, after_any, stopped_between
        self._child: JsonChild | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], limit_sec: float) -> dict[str, Any]:
        """Ask the child that there is, or a new one.

        Raises
        ------
        ChildError
            As :meth:`JsonChild.ask` does.
        """
        if self._asked == self._most:
            self.close()
        child = self._child = self._child or self._start()
        self._asked += 1
        try:
            if self._stopped:
                child.resume()
            answer = child.ask(request, limit_sec)
            if self._stopped:
                child.suspend()
            return answer
        except ChildError as err:
            if self._after_any or not err.usable:
                self.close()
            raise

    def close(self) -> None:
        """End it; the next request starts another one."""
        if self._child is not None:
            self._child.close()
        self._child, self._asked = None, 0


def serve(line: Line, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The child's end: answer requests until the parent closes its own.

    Parameters
    ----------
    line : Line
        What the module's ``main`` was given.
    answer : callable
        What it raises becomes the answer's ``error``.
    """
    for request in line:
        try:
            reply = answer(json.loads(request))
        except Exception as err:  # noqa: BLE001 - becomes the reason in this one's row
            reply = {"error": f"{type(err).__name__}: {telling_line(err)}"}
        line.answer(json.dumps(reply).encode())
