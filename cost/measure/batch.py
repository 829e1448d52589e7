"""A batch of workloads on its way through builder and runner."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.base import Cost, CostStatus
from collage.cost.database.record import RecordKey
from collage.cost.device import DevicePolicy
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats
from collage.cost.measure.runner import ExclusiveDevice, RunJob, Runner, RunResult


@dataclass(frozen=True)
class Batch:
    """Some workloads that are built in parallel, and timed one at a time.

    Attributes
    ----------
    keys : sequence of RecordKey
        Of their records.
    jobs : sequence of BuildJob
        What to build, in the order of the keys.
    builder : Builder
        Compiles them.
    runner : Runner
        Times them.
    policy : DevicePolicy
        Whether the device may be timed while the processor compiles.
    lock : callable
        Gives a context in which nobody else measures on the device.
    recorder : Recorder
        Gets the results.
    stats : MeasureStats
        Gets the seconds.
    """

    keys: Sequence[RecordKey]
    jobs: Sequence[BuildJob]
    builder: Builder
    runner: Runner
    policy: DevicePolicy
    lock: ExclusiveDevice
    recorder: Recorder
    stats: MeasureStats

    def measure(self) -> None:
        """Record the cost of each.

        Raises
        ------
        OutOfTimeError
            When the time is up meanwhile; what was recorded is.
        """
        if self.policy.kind.compiles_beside:
            self._time_while_building()
        else:
            self._build_then_time()

    def _build_then_time(self) -> None:
        # The compiler would run on the very cores that another search times on.
        with self.lock():
            begin = time.perf_counter()
            self.runner.warm_up()
            builds = self.builder.build(self.jobs)
            self.stats.seconds_building += time.perf_counter() - begin
        for index, build in enumerate(builds):
            self._finish(index, build)

    def _time_while_building(self) -> None:
        """The device is held only while something runs on it: code generators use it too."""
        stats = self.stats
        begin, timing_before = time.perf_counter(), stats.seconds_running + stats.seconds_waiting
        self.runner.warm_up()
        self.builder.build(self.jobs, self._finish)
        timing = stats.seconds_running + stats.seconds_waiting - timing_before
        stats.seconds_building += time.perf_counter() - begin - timing

    def _finish(self, index: int, build: BuildResult) -> None:
        """Time what was built, and record what came out."""
        job = self.jobs[index]
        if build.status is not CostStatus.VALID:
            result = RunResult(Cost(build.status, reason=build.reason))
        else:
            run_job = RunJob.in_folder(job.folder)
            result = self.runner.run_sharing(run_job, self.lock)
            self.stats.seconds_running += result.run_sec
        text, backend = job.workload.describe(), job.target.backend
        self.recorder.keep_workload(self.keys[index], result, text, backend, build.build_sec)
        shutil.rmtree(job.folder, ignore_errors=True)
