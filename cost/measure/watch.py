"""Who is at work now, and what each did so far."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from collage.cost.progress import Workforce

WHOLE_MODELS, CHECKS = "whole models", "checks"
"""What a place is said to do when it times those, or looks for what makes one wrong; else it is a
backend."""


@dataclass
class PlaceUse:
    """What one place did.

    Attributes
    ----------
    tasks : mapping of str to int
        How many of which backend it timed, or of :data:`WHOLE_MODELS`.
    busy_sec : float
        Wall time of that, the way there and back included, waiting for others on the device not.
    left_out : str
        Why it was, in one line; empty when it was not.

    Examples
    --------
    >>> use = PlaceUse(Counter(cutlass=3, cudnn=1), 2.5)
    >>> earlier = use.copy()
    >>> use.tasks["cudnn"] += 1
    >>> use.since(earlier)
    PlaceUse(tasks=Counter({'cudnn': 1}), busy_sec=0.0, left_out='')
    """

    tasks: Counter[str] = field(default_factory=Counter)
    busy_sec: float = 0.0
    left_out: str = ""

    def copy(self) -> PlaceUse:
        """As it is now."""
        return PlaceUse(Counter(self.tasks), self.busy_sec, self.left_out)

    def since(self, before: PlaceUse) -> PlaceUse:
        """What was added to an earlier copy."""
        added = self.tasks - before.tasks
        return PlaceUse(added, self.busy_sec - before.busy_sec, self.left_out)


@dataclass
class _Busy:
    place: str
    begin: float


class Watch:
    """Counts who builds, waits and times; of all threads.

    Parameters
    ----------
    uses : dict of str to PlaceUse
        Gets what each place does, by its name; who joins later is added.
    took : callable
        Told how long something was measured, whenever nothing is any longer.

    Examples
    --------
    >>> uses = {"cuda:0": PlaceUse(), "cuda:1": PlaceUse()}
    >>> watch = Watch(uses, lambda seconds: None)
    >>> watch.begin_building(2)
    >>> watch.built(is_valid=True)
    >>> watch.workforce()
    Workforce(workers=2, busy=0, queued=1, building=1)
    >>> with watch.timing("cuda:1", "cutlass", queued=True):
    ...     watch.workforce()
    Workforce(workers=2, busy=1, queued=0, building=1)
    >>> uses["cuda:1"].tasks
    Counter({'cutlass': 1})
    """

    def __init__(self, uses: dict[str, PlaceUse], took: Callable[[float], None]) -> None:
        self._uses = uses
        self._took = took
        self._measuring = 0
        self._begin = 0.0
        self._lock = threading.Lock()
        # By thread: whole models and candidates may have begun at one place, and one waits.
        self._busy: dict[int, _Busy] = {}
        self._queued = 0
        self._building = 0

    @property
    def uses(self) -> Mapping[str, PlaceUse]:
        """What each place did so far."""
        return self._uses

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """While something is measured; of threads that do so at once the time counts once."""
        with self._lock:
            if self._measuring == 0:
                self._begin = time.perf_counter()
            self._measuring += 1
        try:
            yield
        finally:
            with self._lock:
                self._measuring -= 1
                if self._measuring == 0:
                    self._took(time.perf_counter() - self._begin)

    def begin_building(self, count: int) -> None:
        """So many more are handed to builders."""
        with self._lock:
            self._building += count

    def built(self, *, is_valid: bool) -> None:
        """One of them is done, and waits to be timed if it is valid."""
        with self._lock:
            self._building -= 1
            self._queued += is_valid

    def drop(self) -> None:
        """Nothing is built or waited for any longer."""
        with self._lock:
            self._building = self._queued = 0

    def leave_out(self, place: str, reason: str) -> None:
        """A place takes no further part.

        Parameters
        ----------
        place : str
            Its name.
        reason : str
            Why, in one line.
        """
        with self._lock:
            self._uses.setdefault(place, PlaceUse()).left_out = reason

    def waited(self, seconds: float) -> None:
        """What this thread times had to wait for others on its device: the place was not busy."""
        with self._lock:
            if busy := self._busy.get(threading.get_ident()):
                busy.begin += seconds

    @contextmanager
    def timing(self, place: str, what: str, *, queued: bool = False) -> Iterator[None]:
        """While a place times something, which counts as done unless it raises.

        Parameters
        ----------
        place : str
            Its name.
        what : str
            A backend, or :data:`WHOLE_MODELS`.
        queued : bool
            Whether it waited for this until now, as it does again when it raises.

        Yields
        ------
        None
            While the place counts as busy.
        """
        thread = threading.get_ident()
        with self._lock:
            self._queued -= queued
            # It may have joined just now, or have come back.
            use = self._uses.setdefault(place, PlaceUse())
            use.left_out = ""
            self._busy[thread] = _Busy(place, time.perf_counter())
        done = False
        try:
            yield
            done = True
        finally:
            with self._lock:
                use.busy_sec += time.perf_counter() - self._busy.pop(thread).begin
                use.tasks[what] += done
                self._queued += queued and not done

    def workforce(self) -> Workforce:
        """Who is at work now."""
        with self._lock:
            left = [name for name, use in self._uses.items() if not use.left_out]
            busy = {busy.place for busy in self._busy.values()}
            return Workforce(len(left), len(busy), max(0, self._queued), max(0, self._building))
