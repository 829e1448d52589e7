"""Has candidates timed against each other, in the same rounds on one device.

A candidate that is timed alone is timed at some moment, and of many those win that met a good one.
What may decide an answer is therefore timed once more, all of it together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import Cost, CostStatus
from collage.cost.contest import (
    Exchange,
    ExchangeRounds,
    Rounds,
    disturbed_rounds,
    levelled,
    to_discard,
    without,
)
from collage.cost.database.record import RecordKey
from collage.cost.measure.builder import Builder, BuildJob
from collage.cost.measure.engine import Place, Work, Workers
from collage.cost.measure.interleaved.shelf import Shelf
from collage.cost.measure.places.holding import Holding
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats, Question
from collage.cost.measure.runner import PlayedTogether, RunJob, RunResult
from collage.cost.measure.watch import Watch

_TOGETHER = "timed together"
"""What a place's use is called in the report."""

_MOST_BYTES = 256 << 20
"""Files of a contest, all of which are loaded and packed once more, take so much at the most,"""

_LARGEST = 2
"""or so many times what the largest takes. Who has no room takes part in a later one."""


@dataclass(frozen=True)
class TogetherQuestion:
    """What is to be timed together.

    Attributes
    ----------
    questions : mapping of RecordKey to (Workload, BackendTarget)
        By the key of what was timed alone; the order is that of the rows.
    exchanges : tuple of Exchange
        Of these rows: what is to be decided.
    contest : str
        Names all of it.
    patience_sec : float
        After which few rounds must do.
    """

    questions: Mapping[RecordKey, Question]
    exchanges: tuple[Exchange, ...]
    contest: str
    patience_sec: float


class TogetherScheduler:
    """Contests of candidates on one kind of device.

    Parameters
    ----------
    work : Work
        Limits and the deadline.
    workers : Workers
        Who build what is not kept, and who time.
    shelf : Shelf
        Has what was built before.
    holding : Holding
        Keeps others from devices.
    recorder : Recorder
        Gets what is to be said.
    stats : MeasureStats
        Gets the seconds.
    watch : Watch
        Notes who is at work.
    """

    def __init__(
        self,
        work: Work,
        workers: Workers,
        shelf: Shelf,
        holding: Holding,
        recorder: Recorder,
        stats: MeasureStats,
        watch: Watch,
    ) -> None:
        self._work, self._workers, self._shelf = work, workers, shelf
        self._holding, self._recorder = holding, recorder
        self._stats, self._watch = stats, watch

    def measure(
        self,
        question: TogetherQuestion,
        builder: Callable[[Sequence[BackendTarget]], Builder],
        pool: RunnerPool,
    ) -> list[RunResult] | None:
        """Time all of them; nothing is recorded.

        Parameters
        ----------
        question : TogetherQuestion
            What.
        builder : callable
            Gives who builds for some targets.
        pool : RunnerPool
            Any of its places times all of them.

        Returns
        -------
        list of RunResult or None
            In the order of the rows; unknown costs of those that took no part. None where the time
            was up, which says nothing of anybody.

        Raises
        ------
        MeasurementError
            When there is nobody who could build, or time.
        """
        try:
            with self._watch.measuring():
                folders = self._folders(question, builder)
                return self._timed(question, folders, pool)
        except OutOfTimeError:
            return None

    def _folders(
        self,
        question: TogetherQuestion,
        builder: Callable[[Sequence[BackendTarget]], Builder],
    ) -> list[Path | None]:
        """Where what was built lies, by row; None for what takes no part."""
        missing = [key for key in question.questions if self._shelf.find(key) is None]
        if missing:
            asked = [question.questions[key] for key in missing]
            jobs = [BuildJob(*one, self._shelf.place()) for one in asked]
            chosen = builder([target for _, target in asked])
            begin = time.perf_counter()
            if self._workers.builds_beside:
                builds = chosen.build(jobs)
            else:
                with self._holding.place(self._workers.places[0]):
                    builds = chosen.build(jobs)
            self._stats.seconds_building += time.perf_counter() - begin
            for key, job, build in zip(missing, jobs, builds, strict=True):
                if build.status is CostStatus.VALID:
                    self._shelf.keep(key, job.folder)
        found = {key: self._shelf.find(key) for key in question.questions}
        sizes = {key: self._shelf.size(key) for key, folder in found.items() if folder is not None}
        left = max(_MOST_BYTES, _LARGEST * max(sizes.values(), default=0))
        for key, size in sizes.items():
            if size <= left:
                left -= size
            else:
                found[key] = None
        return list(found.values())

    def _timed(
        self, question: TogetherQuestion, folders: Sequence[Path | None], pool: RunnerPool
    ) -> list[RunResult]:
        rows = [row for row, folder in enumerate(folders) if folder is not None]
        place_of = {row: place for place, row in enumerate(rows)}
        jobs = [RunJob.in_folder(folder) for folder in folders if folder is not None]
        rule = ExchangeRounds(
            tuple(
                _renumbered(one, place_of) for one in question.exchanges if one.rows <= set(rows)
            ),
            patience_sec=question.patience_sec,
        )
        found: list[PlayedTogether] = []

        def play(place: Place) -> None:
            self._work.deadline.check()
            begin = time.perf_counter()
            with self._watch.timing(place.name, _TOGETHER):
                found.append(
                    place.runner.play(
                        jobs, rule, question.contest, lambda: self._holding.place(place)
                    )
                )
            self._stats.seconds_running += time.perf_counter() - begin

        self._recorder.report("together", f"{len(jobs)} candidates are timed together")
        pool.submit(play)
        pool.wait()
        results = [RunResult(Cost(CostStatus.UNKNOWN, reason="took no part")) for _ in folders]
        for row, result in zip(rows, _results(found[-1], question.contest), strict=True):
            results[row] = result
        return results


def _renumbered(exchange: Exchange, place_of: Mapping[int, int]) -> Exchange:
    """The same of those rows alone that take part."""
    kept, rival = (
        tuple((place_of[row], count) for row, count in side)
        for side in (exchange.kept, exchange.rival)
    )
    return Exchange(kept, rival)


def _results(together: PlayedTogether, contest: str) -> list[RunResult]:
    """What came of each: its times in the rounds that count, without what befell whole rounds."""
    table, loads = together.played.table, together.played.loads
    right = [
        row if failure is None else (None,) * len(row)
        for row, failure in zip(table, together.failures, strict=True)
    ]
    disturbed = disturbed_rounds([row for row in right if any(row)], loads)
    discarded = to_discard(disturbed, loads)
    if not all(any(row) for row in without([row for row in right if any(row)], discarded)):
        discarded = ()
    others = tuple(load.others for load in loads)
    level = levelled(without(right, discarded))
    found = []
    for row, flat, failure in zip(right, level, together.failures, strict=True):
        samples = [sec for sec in flat if sec is not None]
        if failure is not None or not samples:
            unknown = Cost(CostStatus.UNKNOWN, reason="had no turn")
            found.append(RunResult(failure or unknown))
            continue
        rounds = Rounds(contest, row, disturbed, discarded, others)
        found.append(RunResult(Cost.of_samples(samples), rounds=rounds))
    return found
