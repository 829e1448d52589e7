"""Devices that are held for as long as something is timed on them, and the time that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from collage.backends.contract.errors import OutOfTimeError
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.engine import Hold, Place
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats
from collage.cost.measure.watch import Watch


class Holding:
    """Keeps others from devices; says when it has to wait for them, and counts both.

    Parameters
    ----------
    limit : Deadline
        How long to wait for a device when nothing else is said.
    stats : MeasureStats
        Gets the seconds.
    watch : Watch
        Is told of them, too.
    recorder : Recorder
        Says that others have a device.

    Examples
    --------
    >>> from collage.cost.database import JsonLinesDatabase
    >>> from collage.cost.deadline import NEVER
    >>> from collage.cost.measure import RecordLookup
    >>> from collage.cost.measure.engine import in_turns
    >>> stats = MeasureStats()
    >>> recorder = Recorder(RecordLookup(JsonLinesDatabase(), stats), print)
    >>> holding = Holding(NEVER, stats, Watch({}, print), recorder)
    >>> with holding.device(in_turns()):
    ...     time.sleep(0.01)
    >>> stats.seconds_holding >= 0.01 > stats.seconds_waiting
    True
    """

    def __init__(
        self, limit: Deadline, stats: MeasureStats, watch: Watch, recorder: Recorder
    ) -> None:
        self._limit, self._stats, self._watch, self._recorder = limit, stats, watch, recorder

    @contextmanager
    def place(
        self, place: Place, deadline: Deadline | None = None, sharing: Deadline = NEVER
    ) -> Iterator[None]:
        """A place's device, for as long as the context lasts.

        Parameters
        ----------
        place : Place
            Where.
        deadline, sharing : Deadline, optional
            As :meth:`device` takes them.

        Yields
        ------
        None
            While the device is held.

        Raises
        ------
        OutOfTimeError
            When another process has it until then.
        """
        with self.device(place.hold, deadline, sharing):
            yield

    @contextmanager
    def device(
        self, hold: Hold, deadline: Deadline | None = None, sharing: Deadline = NEVER
    ) -> Iterator[None]:
        """A device, for as long as the context lasts.

        Parameters
        ----------
        hold : callable
            Keeps others from it.
        deadline : Deadline, optional
            How long to wait for it.
        sharing : Deadline, optional
            When it is used all the same, beside whoever has it: times are disturbed then, but who
            has little time wants an answer first.

        Yields
        ------
        None
            While it is held; the seconds of waiting and of holding are counted.

        Raises
        ------
        OutOfTimeError
            When another process has it until then.
        """
        limit = self._limit if deadline is None else deadline

        def waiting() -> None:
            self._recorder.report("wait", "another process is measuring on this device")

        asked = time.perf_counter()
        with ExitStack() as stack:
            try:
                stack.enter_context(hold(waiting, lambda: limit.is_up or sharing.is_up))
            except OutOfTimeError:
                if limit.is_up:
                    raise
                self._recorder.report("wait", "another process goes on measuring on this device")
            got = time.perf_counter()
            self._stats.seconds_waiting += got - asked
            self._watch.waited(got - asked)
            try:
                yield
            finally:
                self._stats.seconds_holding += time.perf_counter() - got
