"""The program of a child process that runs Python, started by its path, and its line to the parent.

It imports nothing but the standard library before it has made sure to die with its parent and to
keep its answers to itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
"""An option of prctl(2): the signal that comes when the parent ends."""


class Line:
    """A child's line to its parent: requests on standard input, answers on what was standard
    output. What libraries print goes to standard error.

    Examples
    --------
    A program, its own way of answering:

    >>> def main(line: Line, greeting: str) -> None:
    ...     for request in line:
    ...         line.answer(f"{greeting}, {request.decode()}".encode())
    """

    def __init__(self) -> None:
        self._answers = os.dup(1)
        os.dup2(2, 1)

    def __iter__(self) -> Iterator[bytes]:
        """Requests, until the parent closes its end."""
        return (line.rstrip(b"\n") for line in sys.stdin.buffer)

    def answer(self, line: bytes) -> None:
        """Write a line, without its end."""
        data = line + b"\n"
        while data:
            data = data[os.write(self._answers, data) :]


def main(text: str) -> None:
    """Run what a :class:`collage.backends.toolchain.children.PythonProgram` names."""
    settings = json.loads(text)
    _die_with_parent(settings["parent"])
    line = Line()
    sys.path[:] = settings["path"]
    with without_packages(settings["without"]), nothing_is_garbage():
        module = importlib.import_module(settings["module"])
    module.main(line, *settings["arguments"])


def _die_with_parent(parent: int) -> None:
    """Linux kills this process when the thread that started it ends; elsewhere the end of the
    input must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # The parent died before that.


@contextmanager
def without_packages(packages: Sequence[str]) -> Iterator[None]:
    """Tell the import system for a while that there are no such packages."""
    hidden = [name for name in packages if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def nothing_is_garbage() -> Iterator[None]:
    """What importing makes stays: looking through it again and again for what may go took a seventh
    of a start with TVM, and later collections pass over it, too."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    main(sys.argv[1])
