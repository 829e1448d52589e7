"""Looks measurements up in the log: what it holds is never made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import ReplayMissError
from collage.cost.base import Cost, CostStatus
from collage.cost.database._base import Database
from collage.cost.database.record import Record, RecordKey
from collage.cost.measure.watch import PlaceUse
from collage.cost.workload.workload import Workload

NO_TIME = Cost(CostStatus.UNKNOWN, reason="not measured: the time budget was spent")

Question = tuple[Workload, BackendTarget]
"""What it costs to run a workload on a target."""


@dataclass
class MeasureStats:
    """What a cost model has done so far.

    Attributes
    ----------
    measured : int
        Records made, invalid ones included.
    from_log : int
        Distinct records answered from the log without having been measured by this model.
    invalid : int
        Records made that are invalid.
    seconds_building, seconds_running : float
        Wall time, waiting for other processes that measure not included. Where building and timing
        overlap, as they do for a GPU, building is what timing has not taken.
    seconds_waiting, seconds_holding : float
        Wall time spent waiting for other processes that measure on the device, and in which they
        had to wait for this one.
    seconds_measuring : float
        Wall time from asking for measurements to having them, all of it.
    built : int
        Workloads that came back from builders, invalid ones included.
    seconds_compiling : float
        What each of them took there, added up.
    builders : int
        Those that build at the same time.
    places : dict of str to PlaceUse
        What each place did that times.

    Examples
    --------
    >>> stats = MeasureStats(measured=12, from_log=30, invalid=1)
    >>> stats.measured - stats.invalid, stats.seconds_building
    (11, 0.0)
    """

    measured: int = 0
    from_log: int = 0
    invalid: int = 0
    seconds_building: float = 0.0
    seconds_running: float = 0.0
    seconds_waiting: float = 0.0
    seconds_holding: float = 0.0
    seconds_measuring: float = 0.0
    built: int = 0
    seconds_compiling: float = 0.0
    builders: int = 0
    places: dict[str, PlaceUse] = field(default_factory=dict)

    def copy(self) -> MeasureStats:
        """As they are now."""
        return replace(self, places={name: use.copy() for name, use in self.places.items()})

    def since(self, before: MeasureStats) -> MeasureStats:
        """What was added to an earlier copy."""
        none = PlaceUse()
        places = {n: use.since(before.places.get(n, none)) for n, use in self.places.items()}
        numbers = [f.name for f in fields(self) if f.name not in ("places", "builders")]
        added = {name: getattr(self, name) - getattr(before, name) for name in numbers}
        return MeasureStats(**added, builders=self.builders, places=places)


class RecordLookup:
    """The log as one cost model uses it.

    Parameters
    ----------
    database : Database
        The log.
    stats : MeasureStats
        Counts what comes out of it and what goes in.

    Examples
    --------
    >>> facts = ("5f1c", "8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    >>> key = RecordKey("partition", *facts, driver="none", num_threads=4, config="{}")
    >>> stats = MeasureStats()
    >>> from collage.cost.database import JsonLinesDatabase
    >>> lookup = RecordLookup(JsonLinesDatabase(), stats)
    >>> lookup.costs([key])[0].reason
    'not measured: the time budget was spent'
    >>> record = lookup.keep(Record(key, Cost.of_samples([1e-6])))
    >>> lookup.costs([key])[0].median_sec, stats.measured
    (1e-06, 1)
    """

    def __init__(self, database: Database, stats: MeasureStats) -> None:
        self.database = database
        self._stats = stats
        self._own: set[RecordKey] = set()
        self._set_aside: dict[RecordKey, Cost] = {}
        self._replayed: set[RecordKey] = set()

    def misses(
        self, keys: Sequence[RecordKey], questions: Sequence[Question]
    ) -> dict[RecordKey, Question]:
        """The questions that the log does not answer, each once.

        Parameters
        ----------
        keys : sequence of RecordKey
            Of the questions at the same positions.
        questions : sequence of (Workload, BackendTarget)
            What is going to be measured where the log lacks it.

        Returns
        -------
        dict[RecordKey, Question]
            By the key of each, in the order of ``keys``.
        """
        open_keys = self.still_missing(keys)
        for key in keys:
            if key not in open_keys and key not in self._set_aside:
                self._count_replayed(key)
        asked = dict(zip(keys, questions, strict=True))
        return {key: question for key, question in asked.items() if key in open_keys}

    def still_missing(self, keys: Sequence[RecordKey]) -> set[RecordKey]:
        """Which of these nobody has measured meanwhile."""
        open_keys = [key for key in keys if key not in self._set_aside]
        found = self.peek(open_keys)
        return {key for key, record in zip(open_keys, found, strict=True) if record is None}

    def costs(self, keys: Sequence[RecordKey]) -> list[Cost]:
        """The cost of each that was asked; unknown when there was no time for it."""
        found = zip(keys, self.database.lookup_all(keys), strict=True)
        return [
            self._set_aside.get(key, NO_TIME) if record is None else record.cost
            for key, record in found
        ]

    def set_aside(self, key: RecordKey, reason: str) -> None:
        """Take something for unusable as long as this lookup is used; the log does not have it.

        Parameters
        ----------
        key : RecordKey
            What is not measured.
        reason : str
            Why, in one line: nothing that another search would have to suffer, too.
        """
        self._set_aside[key] = Cost(CostStatus.RUN_FAILED, reason=f"set aside: {reason}")

    def peek(self, keys: Sequence[RecordKey]) -> list[Record | None]:
        """What there is by now under each key; nothing of it was used yet."""
        self.database.refresh()
        return self.database.lookup_all(keys)

    def replayed(self, records: Sequence[Record]) -> list[Record]:
        """These, counted as answers from the log, but for what it does not hold."""
        known = self.database.lookup_all([record.key for record in records])
        for record, found in zip(records, known, strict=True):
            if found is not None:
                self._count_replayed(record.key)
        return list(records)

    def keep(self, record: Record) -> Record:
        """Append a record; it is on disk when this returns."""
        self.database.append(record)
        self._own.add(record.key)
        self._stats.measured += 1
        self._stats.invalid += not record.cost.is_valid
        return record

    def _count_replayed(self, key: RecordKey) -> None:
        if key not in self._own and key not in self._replayed:
            self._replayed.add(key)
            self._stats.from_log += 1


def partition_miss(question: Question, count: int) -> ReplayMissError:
    """The error of a strict replay that asks for what the log does not hold.

    Parameters
    ----------
    question : (Workload, BackendTarget)
        The first of those that it lacks.
    count : int
        How many it lacks.

    Returns
    -------
    ReplayMissError
        To be raised; its ``value`` is the workload's key.
    """
    workload, target = question
    return ReplayMissError(
        f"the log holds no measurement of '{workload.describe()}' ({workload.key[:12]}) "
        f"on {target.name} that fits this machine, these versions and this configuration"
        f" ({count} such workloads)",
        value=workload.key,
    )
