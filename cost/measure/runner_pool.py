"""Places that time at once, each in a thread of its own; they pull what is to be timed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from collage.backends.contract.errors import MeasurementError
from collage.cost.measure.engine import Place
from collage.cost.measure.runner import PlaceLostError

Task = Callable[[Place], None]
"""Something to do at whichever place is free."""

_POLL_SEC = 0.5
"""How long a wait lasts before an interrupt is looked for."""


class RunnerPool:
    """Hands tasks to places that are free; a task whose place is lost goes to another one.

    Parameters
    ----------
    places : sequence of Place
        At least one. What a place's runner starts is started by the place's own thread, with which
        it would end.
    lost : callable
        Told of a place that is gone, with the reason.

    Examples
    --------
    >>> from collage.cost import MeasureConfig
    >>> from collage.cost.measure import LocalRunner
    >>> names = []
    >>> pool = RunnerPool([Place("cpu", LocalRunner(MeasureConfig()))], print)
    >>> pool.submit(lambda place: names.append(place.name))
    >>> pool.wait()
    >>> names
    ['cpu']
    >>> pool.close()
    """

    def __init__(self, places: Sequence[Place], lost: Callable[[Place, str], None]) -> None:
        self._lost = lost
        self._changed = threading.Condition()
        self._free = deque(places)
        self._threads = {place.name: ThreadPoolExecutor(1, place.name) for place in places}
        self._tasks: deque[Task] = deque()
        self._running = 0
        self._error: BaseException | None = None

    @property
    def size(self) -> int:
        """Places that are left."""
        with self._changed:
            return self._running + len(self._free)

    def submit(self, task: Task) -> None:
        """Have something done by the next place that is free.

        Parameters
        ----------
        task : callable
            Given the place, in the place's thread. What it raises, :meth:`wait` does.
        """
        with self._changed:
            self._tasks.append(task)
            self._hand_out()

    def wait(self) -> None:
        """Wait until all is done.

        Raises
        ------
        MeasurementError
            When no place is left.
        Exception
            The first one of a task; what had not begun by then is dropped.
        """
        with self._changed:
            while self._running or (self._tasks and self._error is None and self._free):
                self._changed.wait(_POLL_SEC)
            error, self._error = self._error, None
            stranded = len(self._tasks)
            self._tasks.clear()
        if error is not None:
            raise error
        if stranded:
            raise MeasurementError(
                f"no worker is left that could time the other {stranded} candidates",
                value=stranded,
            )

    def drop(self) -> None:
        """Forget what has not begun."""
        with self._changed:
            self._tasks.clear()

    def close(self) -> None:
        """End the threads, which no task may hold any more."""
        self.drop()
        for thread in self._threads.values():
            thread.shutdown()

    def _hand_out(self) -> None:
        while self._tasks and self._free and self._error is None:
            place, task = self._free.popleft(), self._tasks.popleft()
            self._running += 1
            self._threads[place.name].submit(self._do, place, task)

    def _do(self, place: Place, task: Task) -> None:
        error: BaseException | None = None
        reason = None
        try:
            task(place)
        except PlaceLostError as err:
            reason = str(err)
        except BaseException as err:  # noqa: BLE001 (raised where it is waited for)
            error = err
        if reason is not None:
            self._lost(place, reason)
        with self._changed:
            self._running -= 1
            if reason is None:
                self._free.append(place)
            else:
                # It was not the candidate's fault.
                self._tasks.appendleft(task)
            if self._error is None:
                self._error = error
            self._hand_out()
            self._changed.notify_all()
