"""A sequence that is made in the background: whoever looks into it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError
from typing import TypeVar, overload

T = TypeVar("T")

_POLL_SEC = 0.1


class BackgroundSequence(Sequence[T]):
    """What a function gives, which runs in a thread that keeps no program from ending.

    Parameters
    ----------
    make : callable
        What it raises, everyone who looks gets.

    Examples
    --------
    >>> from operator import truediv
    >>> halves = BackgroundSequence(lambda: [truediv(n, 2) for n in range(3)])
    >>> halves[2], len(halves)
    (1.0, 3)
    >>> BackgroundSequence(lambda: [truediv(1, 0)])[0]
    Traceback (most recent call last):
        ...
    ZeroDivisionError: division by zero
    """

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._made: Future[Sequence[T]] = Future()
        threading.Thread(target=self._run, args=(make,), daemon=True).start()

    def _run(self, make: Callable[[], Sequence[T]]) -> None:
        try:
            self._made.set_result(make())
        except BaseException as err:  # noqa: BLE001 - raised again where somebody looks
            self._made.set_exception(err)

    def get(self) -> Sequence[T]:
        """What was made, waited for."""
        while True:
            # Not for good at once: a second Ctrl-C is to get through.
            try:
                return self._made.result(_POLL_SEC)
            except TimeoutError:
                if self._made.done():
                    raise

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.get()[index]

    def __len__(self) -> int:
        return len(self.get())
