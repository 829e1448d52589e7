"""Places that time at once, each in a thread of its own; they pull what is to be timed.

Where there are several, all of them stop now and again to time the reference set at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from collage.backends.contract.errors import MeasurementError
from collage.cost.measure.engine import Place
from collage.cost.measure.places.calibration import Calibration, Finding
from collage.cost.measure.places.reference_set import Times
from collage.cost.measure.places.tasks import Pending, SetAside, Task, never
from collage.cost.measure.runner import PlaceAwayError, PlaceLostError

Reference = Callable[[Place], Times]
"""Times the reference set at a place."""

_ABANDONED = Finding({}, again=False)

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
    True
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
        self._tasks: deque[Pending] = deque()
        self._running = 0
        self._error: BaseException | None = None
        self._left: list[str] = []
        self._unlike: list[Place] = []
        self._calibration: Calibration | None = None
        self._reference: Reference | None = None
        self._say: Callable[[str], object] = str
        self._round: dict[str, Times] | None = None
        self._playing: set[str] = set()
        self._admit(places)

    def compare(
        self, calibration: Calibration, reference: Reference, say: Callable[[str], None]
    ) -> None:
        """Let places time something only for as long as their times compare.

        Parameters
        ----------
        calibration : Calibration
            Says when to look, and what follows.
        reference : callable
            Times the reference set at a place, in the place's thread.
        say : callable
            Told why no place is as it should be.
        """
        with self._changed:
            self._calibration, self._reference, self._say = calibration, reference, say

    @property
    def size(self) -> int:
        """Places that are left."""
        with self._changed:
            return self._running + len(self._free)

    def submit(
        self,
        task: Task,
        set_aside: SetAside | None = None,
        is_urgent: Callable[[], bool] = never,
    ) -> None:
        """Have something done by the next place that is free.

        Parameters
        ----------
        task : callable
            Given the place, in the place's thread. What it raises, :meth:`wait` does.
        set_aside : callable, optional
            Called instead, with a reason, once two places were lost with the task: others may be,
            too. Without it, :meth:`wait` raises the error of the last one.
        is_urgent : callable, optional
            Whether it is to be done before what is not, asked when a place is free.
        """
        with self._changed:
            self._tasks.append(Pending(task, set_aside, is_urgent))
            self._hand_out()

    @property
    def is_broken(self) -> bool:
        """Whether :meth:`wait` is going to raise what a task raised."""
        with self._changed:
            return self._error is not None

    def wait(self, enough: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all is done.

        Parameters
        ----------
        enough : callable, optional
            Asked whenever a task has ended, and now and again: whether not to wait any longer.

        Returns
        -------
        bool
            Whether all is done.

        Raises
        ------
        MeasurementError
            When no place is left.
        Exception
            The first one of a task; what had not begun by then is dropped.
        """
        while self._is_wanting():
            with self._changed:
                if self._error is None and enough():
                    return False
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
        return True

    def _is_wanting(self) -> bool:
        """Whether there is something to wait for; looks for places to do what nobody does."""
        with self._changed:
            waiting = bool(self._tasks) and self._error is None
            if not waiting:
                return self._running > 0
            # One place alone is like itself; another one must not time what nothing compares.
            complete = self._calibration is None and bool(self._left)
        if self._find is not None and not complete:
            try:
                self._admit(self._find())
            except BaseException:
                self.drop()
                raise
        with self._changed:
            if self._tasks and self._error is None and not self._running and not self._free:
                self._take_back()
            return bool(self._running or (self._tasks and self._error is None and self._free))

    def _take_back(self) -> None:
        """Go on with a place that was left out: those that it did not compare with are lost."""
        if not self._unlike:
            return
        place = self._unlike.pop()
        self._say(f"{place.name} goes on alone: it was left out, and no other place is left")
        if self._calibration is not None:
            self._calibration.forget(place.name)
        self._left.append(place.name)
        self._free.append(place)
        self._hand_out()

    def _admit(self, places: Sequence[Place]) -> None:
        """Take in those that are new; one that was lost is not, whoever names it."""
        with self._changed:
            for place in places:
                if place not in self._known:
                    self._known.append(place)
                    self._free.append(place)
                    self._left.append(place.name)
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
        if self._round is None and self._tasks and self._error is None and self._is_check_due():
            if self._running:
                return  # All of them begin at once.
            self._begin_round()
        self._hand_out_tasks()

    def _hand_out_tasks(self) -> None:
        while self._tasks and self._free and self._error is None and self._round is None:
            place = self._free.popleft()
            pending = next((one for one in self._tasks if one.is_urgent()), self._tasks[0])
            self._tasks.remove(pending)
            self._running += 1
            self._threads[place.name].submit(self._do, place, pending)

    def _do(self, place: Place, pending: Pending) -> None:
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
            else:
                self._forget(place)
            if again:
                self._tasks.appendleft(pending)
            if self._error is None:
                self._error = error
            self._hand_out()
            self._changed.notify_all()

    def _without(self, place: Place, pending: Pending, error: PlaceLostError) -> bool:
        """Go on without a place; whether its task is to be done elsewhere."""
        self._lost(place, str(error))
        if isinstance(error, PlaceAwayError):
            return True
        return pending.is_worth_another(error)

    def _forget(self, place: Place) -> None:
        self._left.remove(place.name)
        if self._calibration is not None:
            # What comes back under that name may be another device.
            self._calibration.forget(place.name)

    def _is_check_due(self) -> bool:
        return self._calibration is not None and self._calibration.is_due(self._left)

    def _begin_round(self) -> None:
        assert self._calibration is not None
        if self._round is None:
            self._calibration.begin()
            self._playing = {place.name for place in self._free}
        self._round = {}
        for place in [one for one in self._free if one.name in self._playing]:
            self._free.remove(place)
            self._running += 1
            self._threads[place.name].submit(self._compare, place)

    def _compare(self, place: Place) -> None:
        """Have a place play its part of a round; the last one to end it draws the conclusions."""
        times: list[Times] = []
        assert self._reference is not None and self._round is not None
        reference = self._reference
        error: BaseException | None = None
        lost = False
        try:
            times.append(reference(place))
        except PlaceLostError as err:
            lost = True
            self._lost(place, str(err))
        except BaseException as err:  # noqa: BLE001 (raised where it is waited for)
            error = err
        with self._changed:
            if not lost:
                self._free.append(place)
            else:
                self._forget(place)
            if times:
                self._round[place.name] = times[0]
            if self._error is None:
                self._error = error
            is_last = self._running == 1
            if not is_last:
                self._running -= 1
        if is_last:
            self._end_round()

    def _end_round(self) -> None:
        """Go on with another round, or with the work. Nobody else is at anything here."""
        assert self._round is not None and self._calibration is not None
        times = {name: self._round[name] for name in self._left if name in self._round}
        finding = _ABANDONED
        if self._error is None and self._tasks and times:
            finding = self._calibration.add(times)
        for place in list(self._free):
            if place.name in finding.left_out:
                self._lost(place, finding.left_out[place.name])
        if finding.shared_doubt:
            self._say(finding.shared_doubt)
        with self._changed:
            self._running -= 1
            self._unlike += [one for one in self._free if one.name in finding.left_out]
            self._free = deque(one for one in self._free if one.name not in finding.left_out)
            self._left = [name for name in self._left if name not in finding.left_out]
            if finding.again:
                self._begin_round()
            else:
                self._round = None
                if self._playing.issuperset(self._left):
                    # Whatever a check takes, something is timed between two of them.
                    self._hand_out_tasks()
                else:
                    # Who came meanwhile is compared before it times anything.
                    self._hand_out()
            self._changed.notify_all()
