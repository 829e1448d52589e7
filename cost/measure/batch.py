"""Workloads on their way through builder and runners."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from collage.cost.base import Cost, CostStatus
from collage.cost.database.record import RecordKey
from collage.cost.deadline import Deadline
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.engine import Place
from collage.cost.measure.feed import Feed
from collage.cost.measure.interleaved.shelf import Shelf
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.watch import Watch


@dataclass(frozen=True)
class Batch:
    """Workloads that are built in parallel, and timed wherever a place is free.

    Attributes
    ----------
    folder : Path
        Each has a folder of its own in it.
    feed : Feed
        Hands them out, and is told what is done.
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
    shelf : Shelf
        Gets what was timed.
    """

    folder: Path
    feed: Feed
    builder: Builder
    pool: RunnerPool
    hold: Callable[[Place], AbstractContextManager[None]]
    recorder: Recorder
    stats: MeasureStats
    watch: Watch
    timed: Callable[[str, RecordKey], None]
    deadline: Deadline
    shelf: Shelf
    _keys: list[RecordKey] = field(default_factory=list)
    _jobs: list[BuildJob] = field(default_factory=list)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def time_while_building(self) -> None:
        """Record the cost of each: builders and places take what they do next whenever they are
        free. A device is held only while something runs on it, for code generators use it too.

        Raises
        ------
        OutOfTimeError
            When the time is up meanwhile; what was recorded is.
        SettledError
            When nobody wants what is under way.
        """
        stats = self.stats
        begin, timing_before = time.perf_counter(), stats.seconds_running + stats.seconds_waiting
        try:
            while True:
                self.builder.build([], partial(self._finish_from, len(self._jobs)), self._take)
                if self.pool.wait(lambda: self.feed.is_ready):
                    if self.feed.is_over:
                        return
                    self.feed.pause()
        finally:
            timing = stats.seconds_running + stats.seconds_waiting - timing_before
            elapsed = time.perf_counter() - begin
            stats.seconds_building += max(0.0, elapsed - timing / max(1, self.pool.size))

    def build_then_time(self, held: Place, size: int) -> None:
        """Record the cost of each, so many at a time: a place is held for building, too.

        Parameters
        ----------
        held : Place
            On whose cores the compiler runs.
        size : int
            Workloads that are built before the first one is timed.

        Raises
        ------
        OutOfTimeError
            When the time is up meanwhile; what was recorded is.
        """
        while not self.feed.is_over:
            first = len(self._jobs)
            jobs = [job for _ in range(size) if (job := self._take()) is not None]
            if not jobs:
                if self.pool.is_broken:
                    self.pool.wait()  # Raises what broke it: nothing is taken any longer.
                self.feed.pause()
                continue
            with self.hold(held):
                begin = time.perf_counter()
                builds = self.builder.build(jobs)
                self.stats.seconds_building += time.perf_counter() - begin
            for number, build in enumerate(builds):
                self._finish_from(first, number, build)
            self.pool.wait()

    def _take(self) -> BuildJob | None:
        """The next one to be built."""
        taken = None if self.pool.is_broken else self.feed.take()
        if taken is None:
            return None
        key, (workload, target) = taken
        job = BuildJob(workload, target, self.folder / str(len(self._jobs)))
        self._keys.append(key)
        self._jobs.append(job)
        self.watch.begin_building(1)
        return job

    def _finish_from(self, first: int, number: int, build: BuildResult) -> None:
        self._finish(first + number, build)

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
                lambda: self.feed.is_urgent(self._keys[index]),
            )
        elif build.status is CostStatus.UNKNOWN:
            self._set_aside(index, build.reason)
        else:
            self._record(index, build, RunResult(Cost(build.status, reason=build.reason)))

    def _time(self, place: Place, index: int, build: BuildResult) -> None:
        self.deadline.check()
        job = RunJob.in_folder(self._jobs[index].folder)
        with self.watch.timing(place.name, self._jobs[index].target.name, queued=True):
            result = place.runner.run_sharing(job, lambda: self.hold(place))
            if result.cost.status is CostStatus.UNKNOWN:
                self._set_aside(index, result.cost.reason)
                return
            self._record(index, build, result)
        self.timed(place.name, self._keys[index])

    def _set_aside(self, index: int, reason: str) -> None:
        job = self._jobs[index]
        text, backend = job.workload.describe(), job.target.name
        with self._one_at_a_time:
            self.recorder.set_aside(self._keys[index], text, backend, reason)
        self.feed.done()
        shutil.rmtree(job.folder, ignore_errors=True)

    def _record(self, index: int, build: BuildResult, result: RunResult) -> None:
        job = self._jobs[index]
        text, backend = job.workload.describe(), job.target.name
        with self._one_at_a_time:
            self.stats.seconds_running += result.run_sec
            self.recorder.keep_workload(self._keys[index], result, text, backend, build.build_sec)
            if result.cost.is_valid:
                self.shelf.keep(self._keys[index], job.folder)
        self.feed.done()
        shutil.rmtree(job.folder, ignore_errors=True)
