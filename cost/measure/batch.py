"""A batch of workloads on its way through builder and runners."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from collage.cost.base import Cost, CostStatus
from collage.cost.database.record import RecordKey
from collage.cost.deadline import Deadline
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.engine import Place
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.watch import Watch


@dataclass(frozen=True)
class Batch:
    """Some workloads that are built in parallel, and timed wherever a place is free.

    Attributes
    ----------
    keys : sequence of RecordKey
        Of their records.
    jobs : sequence of BuildJob
        What to build, in the order of the keys.
    builder : Builder
        Compiles them.
    pool : RunnerPool
        Times them.
    hold : callable
        Gives a context in which nobody else measures on a place's device.
    recorder : Recorder
        Gets the results.
    stats : MeasureStats
        Gets the seconds.
    watch : Watch
        Gets who does what.
    timed : callable
        Told of each record that a place's time is in, by the place's name.
    deadline : Deadline
        Nothing begins to be timed after it.
    """

    keys: Sequence[RecordKey]
    jobs: Sequence[BuildJob]
    builder: Builder
    pool: RunnerPool
    hold: Callable[[Place], AbstractContextManager[None]]
    recorder: Recorder
    stats: MeasureStats
    watch: Watch
    timed: Callable[[str, RecordKey], None]
    deadline: Deadline
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def time_while_building(self) -> None:
        """Record the cost of each; a device is held only while something runs on it, for code
        generators use it too.

        Raises
        ------
        OutOfTimeError
            When the time is up meanwhile; what was recorded is.
        """
        stats = self.stats
        begin, timing_before = time.perf_counter(), stats.seconds_running + stats.seconds_waiting
        self.watch.begin_building(len(self.jobs))
        self.builder.build(self.jobs, self._finish)
        self.pool.wait()
        timing = stats.seconds_running + stats.seconds_waiting - timing_before
        elapsed = time.perf_counter() - begin
        stats.seconds_building += max(0.0, elapsed - timing / max(1, self.pool.size))

    def build_then_time(self, held: Place) -> None:
        """Record the cost of each; a place is held for building, too.

        Parameters
        ----------
        held : Place
            On whose cores the compiler runs.

        Raises
        ------
        OutOfTimeError
            When the time is up meanwhile; what was recorded is.
        """
        with self.hold(held):
            begin = time.perf_counter()
            self.watch.begin_building(len(self.jobs))
            builds = self.builder.build(self.jobs)
            self.stats.seconds_building += time.perf_counter() - begin
        for index, build in enumerate(builds):
            self._finish(index, build)
        self.pool.wait()

    def _finish(self, index: int, build: BuildResult) -> None:
        """Have what was built timed, and record what comes out."""
        is_valid = build.status is CostStatus.VALID
        self.watch.built(is_valid=is_valid)
        self.stats.built += 1
        self.stats.seconds_compiling += build.build_sec
        if is_valid:
            self.pool.submit(
                lambda place: self._time(place, index, build),
                lambda reason: self._set_aside(index, reason),
            )
        elif build.status is CostStatus.UNKNOWN:
            self._set_aside(index, build.reason)
        else:
            self._record(index, build, RunResult(Cost(build.status, reason=build.reason)))

    def _time(self, place: Place, index: int, build: BuildResult) -> None:
        self.deadline.check()
        job = RunJob.in_folder(self.jobs[index].folder)
        with self.watch.timing(place.name, self.jobs[index].target.name, queued=True):
            result = place.runner.run_sharing(job, lambda: self.hold(place))
            if result.cost.status is CostStatus.UNKNOWN:
                self._set_aside(index, result.cost.reason)
                return
            self._record(index, build, result)
        self.timed(place.name, self.keys[index])

    def _set_aside(self, index: int, reason: str) -> None:
        job = self.jobs[index]
        text, backend = job.workload.describe(), job.target.name
        with self._one_at_a_time:
            self.recorder.set_aside(self.keys[index], text, backend, reason)
        shutil.rmtree(job.folder, ignore_errors=True)

    def _record(self, index: int, build: BuildResult, result: RunResult) -> None:
        job = self.jobs[index]
        text, backend = job.workload.describe(), job.target.name
        with self._one_at_a_time:
            self.stats.seconds_running += result.run_sec
            self.recorder.keep_workload(self.keys[index], result, text, backend, build.build_sec)
        shutil.rmtree(job.folder, ignore_errors=True)
