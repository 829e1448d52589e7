"""A child process that answers requests, one JSON object per line each way.

The child's other end is :func:`serve`. A child may crash, hang or corrupt its GPU context: the
parent gets an error with the last line it printed, and starts another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage.backends.contract.errors import telling_line
from collage.backends.toolchain.child_boot import Line
from collage.backends.toolchain.child_process import (
    ChildDiedError,
    ChildProcess,
    ChildTimeoutError,
    python_command,
)

OPENMP_DEFAULT = {"GOMP_SPINCOUNT": "300000"}
"""What GNU's OpenMP does where nothing is said. A child imports a module of ours, which sets it; a
peer is to run as its users run it."""


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
        super().__init__(python_command(module, arguments), environment, log)

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
            raise ChildError(f"process {err}") from err
        if "error" in answer:
            raise ChildError(str(answer["error"])[:400], usable=True)
        return answer


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
