"""Ctrl-C, once: the best answer so far; twice: the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from collage.pipeline.limits.budget import Budget


@contextmanager
def answering(budget: Budget) -> Iterator[None]:
    """While this lasts, the first SIGINT interrupts a budget, the second is a KeyboardInterrupt.

    Only in the main thread, and only where nobody else handles the signal.

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

    def handle(number: int, frame: FrameType | None) -> None:
        if budget.interrupted:
            raise KeyboardInterrupt
        budget.interrupt()  # Nothing more: the signal may have come in the middle of anything.

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
