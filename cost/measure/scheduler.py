"""Measures workloads: builds them in parallel, times them one at a time, records each."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import OutputError
from collage.backends.storage import exclusive
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database.record import Record, RecordKey
from collage.cost.device import DevicePolicy
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.end_to_end import EndToEndQuestion, EndToEndTimer
from collage.cost.measure.model_builder import ModelJob, ModelResult, compile_models
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import RunJob, Runner, RunResult
from collage.cost.measure.tuning import Tuning
from collage.cost.processes.plugins import plugins_for
from collage.cost.progress import ProgressCallback, ProgressEvent
from collage.cost.reference.precision import is_half

_TUNING_POLL_SEC = 0.2
_TUNING_SHARE = 0.6
"""Of the time left. What was chosen by then is to be built and timed."""


class Measurer:
    """Builds, times and records, on one kind of device.

    Parameters
    ----------
    context : BuildContext
        Cache and scratch folders, threads, compiler.
    config : MeasureConfig
        Repetitions, limits, tolerances.
    policy : DevicePolicy
        What differs between kinds of devices.
    runner : Runner
        Times; closed with the measurer.
    lookup : RecordLookup
        Where records go.
    stats : MeasureStats
        Gets the seconds.
    progress : callable
        Informed of each workload measured.
    parallel_builds : int or None
        Builder processes.
    plugins : sequence of str
        What they register besides what targets ask for.
    deadline : float or None
        On the monotonic clock; nothing is begun after it.

    Examples
    --------
    >>> from collage.cost.database import Database
    >>> from collage.cost.device import CPU_POLICY
    >>> from collage.cost.measure import LocalRunner
    >>> config, stats = MeasureConfig(), MeasureStats()
    >>> measurer = Measurer(
    ...     BuildContext(Path("cache"), Path("work")),
    ...     config,
    ...     CPU_POLICY,
    ...     LocalRunner(config),
    ...     RecordLookup(Database(), stats),
    ...     stats,
    ...     print,
    ...     parallel_builds=1,
    ...     plugins=(),
    ...     deadline=None,
    ... )
    >>> measurer.measure({}, within_budget=True)
    >>> measurer.close()
    >>> stats.measured
    0
    """

    def __init__(
        self,
        context: BuildContext,
        config: MeasureConfig,
        policy: DevicePolicy,
        runner: Runner,
        lookup: RecordLookup,
        stats: MeasureStats,
        progress: ProgressCallback,
        *,
        parallel_builds: int | None,
        plugins: Sequence[str],
        deadline: float | None,
    ) -> None:
        self._context = context
        self._config = config
        self._policy = policy
        self._runner = runner
        self._lookup = lookup
        self._stats = stats
        self._progress = progress
        self._parallel = parallel_builds or policy.builders()
        self._plugins = list(plugins)
        self._deadline = deadline
        self._builder: Builder | None = None
        self._done = 0
        self._wanted = 0

    def close(self) -> None:
        """End the worker processes; the next measurement starts new ones."""
        self._runner.close()
        if self._builder is not None:
            self._builder.close()
            self._builder = None

    def measure(self, misses: Mapping[RecordKey, Question], *, within_budget: bool) -> None:
        """Record the cost of each.

        Parameters
        ----------
        misses : mapping of RecordKey to (Workload, BackendTarget)
            What the log does not hold.
        within_budget : bool
            Whether only as long as there is time.

        Raises
        ------
        MeasurementError
            When no worker process can be started.
        OutputError
            When the scratch folder cannot be made.
        """
        self._wanted += len(misses)
        waiting = list(misses.items())
        size = self._policy.batch_size(self._parallel)
        begin = time.monotonic()
        with self._tuning(misses.values()) as tuning:
            while waiting and not (within_budget and self._time_is_up()):
                if self._deadline is not None and within_budget:
                    tuning.close_after(begin + _TUNING_SHARE * (self._deadline - begin))
                ready = [miss for miss in waiting if not tuning.is_under_way(miss[1][1])]
                if not ready:
                    tuning.wait(_TUNING_POLL_SEC)
                    continue
                begun = dict(ready[:size])
                waiting = [miss for miss in waiting if miss[0] not in begun]
                # Another search may have measured some of them meanwhile.
                self._lookup.database.refresh()
                batch = [miss for miss in begun.items() if self._lookup.still_missing(miss[0])]
                with tempfile.TemporaryDirectory(dir=self.scratch(), prefix="measure-") as folder:
                    _Batch(self, batch, Path(folder), within_budget=within_budget).measure()

    def _tuning(self, questions: Iterable[Question]) -> Tuning:
        context = replace(self._context, work_dir=self.scratch() / "tuning")
        return Tuning(
            questions, context, self._config, self._policy, lambda text: self._report("tune", text)
        )

    def compile_models(
        self, jobs: Sequence[ModelJob], targets: Sequence[BackendTarget]
    ) -> list[ModelResult]:
        """Compile whole models that are going to be timed; see :func:`compile_models`.

        Parameters
        ----------
        jobs : sequence of ModelJob
            Variants of one model.
        targets : sequence of BackendTarget
            Everything that they may use.
        """
        ended = 0

        def done(index: int, result: ModelResult) -> None:
            nonlocal ended
            ended += 1
            reason = f": {result.reason}" if result.reason else ""
            self._progress(
                ProgressEvent("compile", ended, len(jobs), f"{jobs[index].description}{reason}")
            )

        with ExitStack() as stack:
            if not self._policy.kind.compiles_beside:
                # The compiler would run on the very cores that another search times on.
                stack.enter_context(self.lock())
            begin = time.perf_counter()
            self._progress(ProgressEvent("compile", 0, len(jobs), f"{len(jobs)} whole models"))
            results = compile_models(
                jobs, targets, self._context, self._config, self._parallel, done
            )
            self._stats.seconds_building += time.perf_counter() - begin
        return results

    def measure_models(
        self, question: EndToEndQuestion, libraries: Sequence[Path], keys: Sequence[RecordKey]
    ) -> list[Record]:
        """Record the end-to-end time of each model, all timed against each other.

        Parameters
        ----------
        question : EndToEndQuestion
            The models to compare, and on what.
        libraries : sequence of Path
            What each was linked into.
        keys : sequence of RecordKey
            Of their records.
        """
        timer = EndToEndTimer(self._config, self.scratch(), self._progress, self._policy)
        with self.lock():
            begin = time.perf_counter()
            results = timer.measure(question, libraries)
            self._stats.seconds_running += time.perf_counter() - begin
        made = []
        for model, key, result in zip(question.models, keys, results, strict=True):
            backends = ",".join(sorted({target.backend for target in model.targets}))
            made.append(self._lookup.keep(_record(key, result, model.description, backends)))
        return made

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The device, for as long as the context lasts."""

        def waiting() -> None:
            self._report("wait", "another process is measuring on this device")

        asked = time.perf_counter()
        with exclusive(self._policy.kind, waiting):
            got = time.perf_counter()
            self._stats.seconds_waiting += got - asked
            try:
                yield
            finally:
                self._stats.seconds_holding += time.perf_counter() - got

    def scratch(self) -> Path:
        """The scratch folder, made when it is not there.

        Raises
        ------
        OutputError
            When it cannot be made.
        """
        try:
            self._context.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise OutputError(
                f"cannot make the scratch folder '{self._context.work_dir}': {err.strerror}",
                value=str(self._context.work_dir),
            ) from err
        return self._context.work_dir

    def _builder_for(self, jobs: Sequence[BuildJob]) -> Builder:
        plugins = plugins_for(job.target for job in jobs)
        if self._builder is not None and not set(plugins) <= set(self._plugins):
            self._builder.close()
            self._builder = None
        if self._builder is None:
            self._plugins = sorted({*self._plugins, *plugins})
            self._builder = Builder(
                self._context, self._config, self._plugins, self._parallel, self._policy
            )
        return self._builder

    def _time_is_up(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _report(self, stage: str, message: str) -> None:
        self._progress(ProgressEvent(stage, self._done, self._wanted, message))


class _Batch:
    """Some workloads on their way through builders and runner."""

    def __init__(
        self,
        owner: Measurer,
        questions: list[tuple[RecordKey, Question]],
        folder: Path,
        *,
        within_budget: bool,
    ) -> None:
        self._owner = owner
        self._questions = questions
        self._within_budget = within_budget
        self._jobs = [
            BuildJob(workload, target, folder / str(index))
            for index, (_, (workload, target)) in enumerate(questions)
        ]

    def measure(self) -> None:
        if not self._jobs:
            return
        if self._owner._policy.kind.compiles_beside:
            self._time_while_building()
        else:
            self._build_then_time()

    def _build_then_time(self) -> None:
        owner = self._owner
        builder = owner._builder_for(self._jobs)
        # The compiler would run on the very cores that another search times on.
        with owner.lock():
            begin = time.perf_counter()
            owner._runner.warm_up()
            builds = builder.build(self._jobs)
            owner._stats.seconds_building += time.perf_counter() - begin
        for index, build in enumerate(builds):
            if build is not None:
                self._finish(index, build)

    def _time_while_building(self) -> None:
        """The device is held only while something runs on it: code generators use it too."""
        owner, stats = self._owner, self._owner._stats
        begin, timing_before = time.perf_counter(), stats.seconds_running + stats.seconds_waiting
        owner._runner.warm_up()
        owner._builder_for(self._jobs).build(self._jobs, self._finish, self._go_on)
        timing = stats.seconds_running + stats.seconds_waiting - timing_before
        stats.seconds_building += time.perf_counter() - begin - timing

    def _go_on(self) -> bool:
        return not (self._within_budget and self._owner._time_is_up())

    def _finish(self, index: int, build: BuildResult) -> None:
        """Time what was built, unless there is no time, and record what came out."""
        owner, job = self._owner, self._jobs[index]
        if build.status is not CostStatus.VALID:
            result = RunResult(Cost(build.status, reason=build.reason))
        elif not self._go_on():
            return
        else:
            half = is_half(job.workload, job.target)
            run_job = RunJob.in_folder(job.folder, half=half)
            result = owner._runner.run_sharing(run_job, owner.lock)
            owner._stats.seconds_running += result.run_sec
        text, backend = job.workload.describe(), job.target.backend
        key = self._questions[index][0]
        owner._lookup.keep(_record(key, result, text, backend, build.build_sec))
        shutil.rmtree(job.folder, ignore_errors=True)
        owner._done += 1
        owner._report("measure", f"{text} on {backend}: {_text(result)}")


def _record(
    key: RecordKey, result: RunResult, description: str, backend: str, build_sec: float = 0.0
) -> Record:
    return Record(
        key,
        result.cost,
        description,
        backend,
        result.largest_error,
        result.first_call_sec,
        build_sec,
        result.run_sec,
        datetime.now(UTC).isoformat(timespec="seconds"),
        result.clocks,
    )


def _text(result: RunResult) -> str:
    cost = result.cost
    if not cost.is_valid:
        return f"{cost.status.value}, {cost.reason}"
    text = f"{cost.median_sec * 1e3:.3f} ms ± {cost.spread_sec * 1e3:.3f}"
    return f"{text} at {result.clocks.sm_mhz} MHz" if result.clocks else text
