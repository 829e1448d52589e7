"""Ctrl-C once gives an answer and twice none, whatever runs at the time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from collage.pipeline.limits import Budget, answering


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    assert signal.set_wakeup_fd(-1) == -1


def press(times: int) -> threading.Thread:
    """Soon, from another thread."""

    def send() -> None:
        for _ in range(times):
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def no_python() -> None:
    """Half a second or more in which no handler can be called."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_500_000)


def test_one_is_an_interrupted_budget() -> None:
    budget = Budget()
    with answering(budget):
        press(1).join()
    assert budget.interrupted and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_that_come_while_no_python_runs_are_two() -> None:
    budget = Budget()
    with pytest.raises(KeyboardInterrupt), answering(budget):
        pressing = press(2)
        no_python()
        pressing.join()


def test_two_of_which_the_second_is_swallowed_end_it_all_the_same() -> None:
    """As a finalizer swallows it, or a callback out of C."""
    went_on = False
    with pytest.raises(KeyboardInterrupt), answering(Budget()):
        os.kill(os.getpid(), signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        went_on = True
    assert went_on


def test_an_event_loop_keeps_its_wakeup_file() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        signal.set_wakeup_fd(writer)
        budget = Budget()
        with answering(budget):
            os.kill(os.getpid(), signal.SIGINT)
        assert budget.interrupted and os.read(reader, 8) == bytes([signal.SIGINT])
        with pytest.raises(KeyboardInterrupt), answering(Budget()):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        assert signal.set_wakeup_fd(-1) == writer
    finally:
        os.close(reader)
        os.close(writer)
