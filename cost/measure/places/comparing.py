"""Keeps the places of an engine comparable while they time candidates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import tvm

from collage.backends.contract.errors import MeasurementError
from collage.cost.database.record import RecordKey
from collage.cost.device import DevicePolicy
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Place
from collage.cost.measure.places.calibration import Calibration
from collage.cost.measure.places.reference_set import ReferenceSet, Times
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.replay import Question

_OTHERS = "others"


class Comparing:
    """The reference set of a search, and what must be timed again because a place was not good.

    Parameters
    ----------
    policy : DevicePolicy
        Of the kind of device.
    bound : float
        How far apart times may lie, as a share.
    scratch : Path
        Gets a folder for the reference set.
    hold : callable
        Gives a context in which nobody else measures on a place's device.
    say : callable
        Told why no place is as it should be.

    Examples
    --------
    >>> from contextlib import nullcontext
    >>> from collage.cost.device import CPU_POLICY
    >>> comparing = Comparing(CPU_POLICY, 0.03, Path("."), lambda place: nullcontext(), print)
    >>> comparing.take_doubtful()
    {}
    """

    def __init__(
        self,
        policy: DevicePolicy,
        bound: float,
        scratch: Path,
        hold: Callable[[Place], AbstractContextManager[None]],
        say: Callable[[str], None],
    ) -> None:
        self._policy, self._scratch, self._hold, self._say = policy, scratch, hold, say
        self._calibration = Calibration(bound)
        self._asked: dict[RecordKey, Question] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._set: ReferenceSet | None = None
        self._unbuilt = ""
        self._others: dict[str, str] = {}

    @property
    def has_begun(self) -> bool:
        """Whether places are compared."""
        return self._folder is not None

    def begin(self, pool: RunnerPool, target: tvm.target.Target, builder: Builder) -> None:
        """Build the reference set, and have the places of a pool compared by it.

        Parameters
        ----------
        pool : RunnerPool
            Its places.
        target : tvm.target.Target
            What they are, exactly.
        builder : Builder
            Compiles it.
        """
        self._folder = tempfile.TemporaryDirectory(dir=self._scratch, prefix="reference-")
        folder = Path(self._folder.name)
        try:
            self._set = ReferenceSet.build(self._policy, target, builder, folder)
        except MeasurementError as err:
            self._unbuilt = str(err)
        pool.compare(self._calibration, self._time, self._say)

    def look_for_others(self, places: Sequence[Place]) -> None:
        """Find out who else computes on places' devices: once, before this search does itself.

        Its code generators compute beside what is timed, and the driver does not tell them from
        others. Whoever comes later makes the place slower, which the reference set shows.
        """
        # A look takes a second, in which nothing else may compute there.
        with ThreadPoolExecutor(len(places)) as looking:
            list(looking.map(self._look, places))

    def _look(self, place: Place) -> None:
        with self._hold(place):
            self._others[place.name] = place.runner.others()

    def ask(self, questions: Mapping[RecordKey, Question]) -> None:
        """Take down what is going to be timed.

        Parameters
        ----------
        questions : mapping of RecordKey to (Workload, BackendTarget)
            What is asked, by the key of its record.
        """
        self._asked.update(questions)

    def timed(self, place: str, key: RecordKey) -> None:
        """Take down where something was timed.

        Parameters
        ----------
        place : str
            The place's name.
        key : RecordKey
            Of what was timed.
        """
        self._calibration.timed(place, key)

    def take_doubtful(self) -> dict[RecordKey, Question]:
        """What must be timed again: the records there are came from a place that had changed."""
        return {key: self._asked[key] for key in self._calibration.take_doubtful()}

    def close(self) -> None:
        """Remove the reference set."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _time(self, place: Place) -> Times:
        if self._set is None:
            return {_OTHERS: self._unbuilt}
        if place.name not in self._others:
            self._look(place)
        if others := self._others[place.name]:
            return {_OTHERS: others}
        # Held once for all of them: code generators want the device in between, each time.
        with self._hold(place):
            return self._set.time(place)
