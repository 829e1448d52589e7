"""Places that time at once, each in a thread of its own; they pull what is to be timed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from collage.backends.contract.errors import MeasurementError
from collage.cost.measure.engine import Place
from collage.cost.measure.runner import PlaceLostError

Task = Callable[[Place], None]
"""Something to do at whichever place is free."""

SetAside = Callable[[str], None]
"""Told why something is not done at all."""

_POLL_SEC = 0.5
"""How long a wait lasts before an interrupt is looked for."""

_MOST_LOST = 2
"""Places that one task may take along: the third would hardly fare better, nor the last one."""


@dataclass
class _Pending:
    task: Task
    set_aside: SetAside | None
    lost: int = 0


class RunnerPool:
    """Hands tasks to places that are free; a task whose place is lost goes to another one.

    Parameters
    ----------
    places : sequence of Place
        At least one. What a place's runner starts is started by the place's own thread, with which
        it would end.
    lost : callable
        Told of a place that is gone, with the reason.
    find : callable, optional
        Gives the places there are now, where they come and go. It may wait for one where there is
        none, and raises when it gives up.

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

    def __init__(
        self,
        places: Sequence[Place],
        lost: Callable[[Place, str], None],
        find: Callable[[], Sequence[Place]] | None = None,
    ) -> None:
        self._lost, self._find = lost, find
        self._changed = threading.Condition()
        self._known: list[Place] = []
        self._free: deque[Place] = deque()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._tasks: deque[_Pending] = deque()
        self._running = 0
        self._error: BaseException | None = None
        self._admit(places)

    @property
    def size(self) -> int:
        """Places that are left."""
        with self._changed:
            return self._running + len(self._free)

    def submit(self, task: Task, set_aside: SetAside | None = None) -> None:
        """Have something done by the next place that is free.

        Parameters
        ----------
        task : callable
            Given the place, in the place's thread. What it raises, :meth:`wait` does.
        set_aside : callable, optional
            Called instead, with a reason, once two places were lost with the task: others may be,
            too. Without it, :meth:`wait` raises the error of the last one.
        """
        with self._changed:
            self._tasks.append(_Pending(task, set_aside))
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
        while self._is_wanting():
            with self._changed:
                if self._running:
                    self._changed.wait(_POLL_SEC)
        with self._changed:
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

    def _is_wanting(self) -> bool:
        """Whether there is something to wait for; looks for places to do what nobody does."""
        with self._changed:
            waiting = bool(self._tasks) and self._error is None
            if not waiting:
                return self._running > 0
        if self._find is not None:
            try:
                self._admit(self._find())
            except BaseException:
                self.drop()
                raise
        with self._changed:
            return bool(self._running or (self._tasks and self._error is None and self._free))

    def _admit(self, places: Sequence[Place]) -> None:
        """Take in those that are new; one that was lost is not, whoever names it."""
        with self._changed:
            for place in places:
                if place not in self._known:
                    self._known.append(place)
                    self._free.append(place)
                    if place.name not in self._threads:
                        self._threads[place.name] = ThreadPoolExecutor(1, place.name)
            self._hand_out()

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
            place, pending = self._free.popleft(), self._tasks.popleft()
            self._running += 1
            self._threads[place.name].submit(self._do, place, pending)

    def _do(self, place: Place, pending: _Pending) -> None:
        error: BaseException | None = None
        lost = again = False
        try:
            pending.task(place)
        except PlaceLostError as err:
            lost = True
            try:
                again = self._without(place, pending, err)
            except BaseException as other:  # noqa: BLE001 (raised where it is waited for)
                error = other
        except BaseException as err:  # noqa: BLE001 (raised where it is waited for)
            error = err
        with self._changed:
            self._running -= 1
            if not lost:
                self._free.append(place)
            if again:
                self._tasks.appendleft(pending)
            if self._error is None:
                self._error = error
            self._hand_out()
            self._changed.notify_all()

    def _without(self, place: Place, pending: _Pending, error: PlaceLostError) -> bool:
        """Go on without a place; whether its task is to be done elsewhere."""
        self._lost(place, str(error))
        pending.lost += 1
        if pending.lost < _MOST_LOST:
            return True
        if pending.set_aside is None:
            raise error
        pending.set_aside(
            f"{pending.lost} workers were lost with it, the last one because: {error}"
        )
        return False
