"""Ctrl-C, once: the best answer so far; twice: the end."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from collage.pipeline.limits.budget import Budget


@contextmanager
def answering(budget: Budget) -> Iterator[None]:
    """While this lasts, the first SIGINT interrupts a budget, the second is a KeyboardInterrupt.

    Only in the main thread, and only where nobody else handles the signal.

    Yields
    ------
    None
        Meanwhile.

    Raises
    ------
    KeyboardInterrupt
        At the second, or at the end where whoever ran at the time has swallowed it.

    Examples
    --------
    >>> import os
    >>> budget = Budget()
    >>> with answering(budget):
    ...     os.kill(os.getpid(), signal.SIGINT)
    ...     budget.interrupted
    True
    """
    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or before is not signal.default_int_handler:
        yield
        return
    with _Counted() as counted:

        def handle(number: int, frame: FrameType | None) -> None:
            if counted.once_more() > 1:
                raise KeyboardInterrupt
            budget.interrupt()  # Nothing more: the signal may have come in the middle of anything.

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if counted.so_far > 1:
            raise KeyboardInterrupt


class _Counted:
    """How often SIGINT has come; use as a context manager in the main thread.

    Python calls a handler once for all that come while something runs that is no Python, a second
    or more in a compiler; each of them writes to the wakeup file, if that is no event loop's.
    """

    def __init__(self) -> None:
        self.so_far = 0
        self._calls = 0
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def __enter__(self) -> _Counted:
        self._others = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if self._others >= 0:
            signal.set_wakeup_fd(self._others)
        return self

    def __exit__(self, *_: object) -> None:
        if self._others < 0:
            signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()

    def once_more(self) -> int:
        """A handler was called; how often it has come."""
        self._calls += 1
        with contextlib.suppress(BlockingIOError):
            self.so_far += self._reader.recv(4096).count(signal.SIGINT)
        self.so_far = max(self.so_far, self._calls)
        return self.so_far
