"""The measured cost model: answers from the log, or builds, checks and times."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from collage.backends.base import BackendTarget, BuildContext
from collage.backends.errors import OutputError, ReplayMissError
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.builder import Builder, BuildJob, BuildResult
from collage.cost.database import Database
from collage.cost.device import Device, detect
from collage.cost.device_lock import exclusive
from collage.cost.end_to_end import EndToEndTimer, WholeModel
from collage.cost.keys import KeyMaker
from collage.cost.measure_config import MeasureConfig
from collage.cost.overheads import Overheads, overheads_from, probe_workloads
from collage.cost.plugins import plugins_for
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.cost.record import END_TO_END, PARTITION, TRANSITION, Record, RecordKey
from collage.cost.runner import LocalRunner, RunJob, Runner, RunResult
from collage.cost.workload import Workload

_BATCH = 8
"""Workloads built before they are timed: enough to keep the builders busy, and little to lose."""

NO_TIME = Cost(CostStatus.UNKNOWN, reason="not measured: the time budget was spent")


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
        Wall time, waiting for other processes that measure not included.
    """

    measured: int = 0
    from_log: int = 0
    invalid: int = 0
    seconds_building: float = 0.0
    seconds_running: float = 0.0


class MeasuredCostModel(CostModel):
    """Measures what the log does not know; use as a context manager, which ends the workers.

    Workers start with the first miss, so a replay starts none.

    Parameters
    ----------
    context : BuildContext
        Cache and scratch folders, threads, compiler.
    database : Database, optional
        The log; by default one in memory.
    config : MeasureConfig, optional
        Repetitions, limits, tolerances.
    time_budget_sec : float, optional
        Wall time from now on after which nothing more is measured: what is not in the log is then
        unknown. The workload under way is finished.
    replay_only : bool
        Never measure; a miss is an error.
    progress : callable, optional
        Told about each workload built and measured.
    runner : Runner, optional
        Where to time; by default this machine. It is closed with the model.
    device : Device, optional
        What ``runner`` times on; by default this machine's CPU.
    parallel_builds : int
        Builder processes.
    plugins : sequence of str
        ``module:Class`` of backends that workers must register; those of the targets that are
        asked about are found without.
    """

    def __init__(
        self,
        context: BuildContext,
        database: Database | None = None,
        config: MeasureConfig | None = None,
        *,
        time_budget_sec: float | None = None,
        replay_only: bool = False,
        progress: ProgressCallback = ignore,
        runner: Runner | None = None,
        device: Device | None = None,
        parallel_builds: int = 2,
        plugins: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._database = database if database is not None else Database()
        self._config = config if config is not None else MeasureConfig()
        self._device = device if device is not None else detect("cpu")
        self._keys = KeyMaker(context, self._config, self._device)
        self._deadline = None if time_budget_sec is None else time.monotonic() + time_budget_sec
        self._replay_only = replay_only
        self._progress = progress
        self._runner = runner if runner is not None else LocalRunner(self._config)
        self._parallel_builds = parallel_builds
        self._builder: Builder | None = None
        self._plugins = list(plugins)
        self._done = 0
        self._wanted = 0
        self._own: set[RecordKey] = set()
        self._replayed: set[RecordKey] = set()
        self.stats = MeasureStats()

    def __enter__(self) -> MeasuredCostModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. A later question starts new ones."""
        self._runner.close()
        if self._builder is not None:
            self._builder.close()
            self._builder = None

    @property
    def database(self) -> Database:
        """The log in use."""
        return self._database

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """The cost of each workload on the target at the same position.

        Equal workloads are measured once. Each measurement is in the log before the next begins.

        Raises
        ------
        ReplayMissError
            With ``replay_only``, naming the first workload that the log does not hold.
        LogError
            When the log can no longer be written.
        MeasurementError
            When no worker process can be started.
        """
        return self._answer(PARTITION, workloads, targets)

    def overheads(self, target: BackendTarget) -> Overheads:
        """What the virtual machine adds to every call and every partition, measured once.

        Parameters
        ----------
        target : BackendTarget
            A native backend's.

        Raises
        ------
        MeasurementError
            When even the smallest modules cannot be measured.
        """
        workloads = probe_workloads(target.backend)
        costs = self._answer(TRANSITION, workloads, [target] * len(workloads))
        return overheads_from(costs)

    def measure_end_to_end(
        self,
        models: Sequence[WholeModel],
        inputs: Sequence[NDArray[Any]],
        expected: Sequence[NDArray[Any]],
        *,
        rounds: int = 5,
    ) -> list[Record]:
        """Time whole models against each other, alternating between them.

        Answered from the log only when it holds all of them: times of different hours do not
        compare. Otherwise all are measured.

        Parameters
        ----------
        models : sequence of WholeModel
            Linked libraries by key.
        inputs : sequence of ndarray
            What to run them on.
        expected : sequence of ndarray
            What each must give, within the configuration's tolerance.
        rounds : int
            Turns of each model; one that is hopelessly slower than the best gets fewer.

        Returns
        -------
        list of Record
            In the order given; each with its cost and its largest error.
        """
        self._database.refresh()
        tensors = f"{_shapes(inputs)} -> {_shapes(expected)}; {rounds} rounds"
        keys = [self._keys.make(END_TO_END, m.key, tensors, m.targets) for m in models]
        records = [self._database.lookup(key) for key in keys]
        found = [record for record in records if record is not None]
        if len(found) == len(models):
            for record in found:
                self._count_replayed(record.key)
            return found
        if self._replay_only:
            missing = next(m for m, r in zip(models, records, strict=True) if r is None)
            raise ReplayMissError(
                f"the log holds no end-to-end time of '{missing.description}'", value=missing.key
            )
        with self._device_lock():
            begin = time.perf_counter()
            timer = EndToEndTimer(self._config, self._scratch(), self._progress)
            results = timer.measure(models, inputs, expected, rounds)
            self.stats.seconds_running += time.perf_counter() - begin
        made = []
        for model, key, result in zip(models, keys, results, strict=True):
            backends = ",".join(sorted({target.backend for target in model.targets}))
            made.append(self._record(key, result, model.description, backends))
        return made

    def _answer(
        self, kind: str, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        keys = [
            self._keys.partition(workload, target, kind)
            for workload, target in zip(workloads, targets, strict=True)
        ]
        self._database.refresh()
        misses: dict[RecordKey, tuple[Workload, BackendTarget]] = {}
        for key, workload, target in zip(keys, workloads, targets, strict=True):
            if self._database.lookup(key) is None:
                misses[key] = (workload, target)
            else:
                self._count_replayed(key)
        if misses and self._replay_only:
            workload, target = next(iter(misses.values()))
            raise ReplayMissError(
                f"the log holds no measurement of '{workload.describe()}' ({workload.key[:12]}) "
                f"on {target.backend} that fits this machine, these versions and this configuration"
                f" ({len(misses)} such workloads)",
                value=workload.key,
            )
        if misses:
            # The overheads take a moment, and without them nothing else adds up: always measured.
            self._measure(misses, within_budget=kind == PARTITION)
        records = [self._database.lookup(key) for key in keys]
        return [record.cost if record is not None else NO_TIME for record in records]

    def _measure(
        self, misses: dict[RecordKey, tuple[Workload, BackendTarget]], *, within_budget: bool
    ) -> None:
        self._wanted += len(misses)
        waiting = list(misses.items())
        while waiting and not (within_budget and self._time_is_up()):
            batch, waiting = waiting[:_BATCH], waiting[_BATCH:]
            # Another search may have measured some of them meanwhile.
            self._database.refresh()
            batch = [miss for miss in batch if self._database.lookup(miss[0]) is None]
            scratch = self._scratch()
            with tempfile.TemporaryDirectory(dir=scratch, prefix="measure-") as folder:
                self._measure_batch(batch, Path(folder), within_budget=within_budget)

    def _measure_batch(
        self,
        batch: list[tuple[RecordKey, tuple[Workload, BackendTarget]]],
        folder: Path,
        *,
        within_budget: bool,
    ) -> None:
        jobs = [
            BuildJob(workload, target, folder / str(index))
            for index, (_, (workload, target)) in enumerate(batch)
        ]
        builds = self._build(jobs)
        for (key, (workload, target)), job, build in zip(batch, jobs, builds, strict=True):
            if build.status is not CostStatus.VALID:
                result = RunResult(Cost(build.status, reason=build.reason))
            elif within_budget and self._time_is_up():
                return
            else:
                with self._device_lock():
                    result = self._runner.run(RunJob.in_folder(job.folder))
                self.stats.seconds_running += result.run_sec
            self._record(key, result, workload.describe(), target.backend, build)
            self._done += 1
            self._tell("measure", f"{workload.describe()} on {target.backend}: {_text(result)}")

    def _build(self, jobs: list[BuildJob]) -> list[BuildResult]:
        plugins = plugins_for(job.target for job in jobs)
        if self._builder is not None and not set(plugins) <= set(self._plugins):
            self._builder.close()
            self._builder = None
        if self._builder is None:
            self._plugins = sorted({*self._plugins, *plugins})
            self._builder = Builder(
                self._context, self._config, self._plugins, self._parallel_builds
            )
        # On a CPU the compiler would run on the very cores that another search times on.
        with self._device_lock():
            begin = time.perf_counter()
            self._runner.warm_up()
            builds = self._builder.build(jobs)
            self.stats.seconds_building += time.perf_counter() - begin
        return builds

    def _record(
        self,
        key: RecordKey,
        result: RunResult,
        description: str,
        backend: str,
        build: BuildResult | None = None,
    ) -> Record:
        record = Record(
            key,
            result.cost,
            description,
            backend,
            result.largest_error,
            result.first_call_sec,
            build.build_sec if build is not None else 0.0,
            result.run_sec,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._database.append(record)
        self._own.add(key)
        self.stats.measured += 1
        self.stats.invalid += not result.cost.is_valid
        return record

    def _count_replayed(self, key: RecordKey) -> None:
        if key not in self._own and key not in self._replayed:
            self._replayed.add(key)
            self.stats.from_log += 1

    def _tell(self, stage: str, message: str) -> None:
        self._progress(ProgressEvent(stage, self._done, self._wanted, message))

    def _time_is_up(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _scratch(self) -> Path:
        try:
            self._context.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise OutputError(
                f"cannot make the scratch folder '{self._context.work_dir}': {err.strerror}",
                value=str(self._context.work_dir),
            ) from err
        return self._context.work_dir

    def _device_lock(self) -> AbstractContextManager[None]:
        return exclusive(
            self._device.kind,
            lambda: self._tell("wait", "another process is measuring on this device"),
        )


def _shapes(arrays: Sequence[NDArray[Any]]) -> str:
    return ", ".join(f"{'x'.join(map(str, a.shape)) or 'scalar'}:{a.dtype.name}" for a in arrays)


def _text(result: RunResult) -> str:
    cost = result.cost
    if cost.is_valid:
        return f"{cost.median_sec * 1e3:.3f} ms ± {cost.spread_sec * 1e3:.3f}"
    return f"{cost.status.value}, {cost.reason}"
