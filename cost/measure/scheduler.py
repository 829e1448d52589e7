"""Measures workloads: builds them in parallel, times them one at a time, records each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import OutputError
from collage.backends.storage import exclusive
from collage.cost.config import MeasureConfig
from collage.cost.database.record import Record, RecordKey
from collage.cost.device import DevicePolicy
from collage.cost.measure.batch import Batch
from collage.cost.measure.builder import Builder, BuildJob
from collage.cost.measure.end_to_end import EndToEndQuestion, EndToEndTimer
from collage.cost.measure.model_builder import ModelJob, ModelResult, compile_models
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import Runner
from collage.cost.measure.tuning import Tuning
from collage.cost.processes.plugins import plugins_for
from collage.cost.progress import ProgressCallback, ProgressEvent

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
        self._recorder = Recorder(lookup, progress)

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
        self._recorder.wanted += len(misses)
        waiting = list(misses.items())
        size = self._policy.batch_size(self._parallel)
        begin = time.monotonic()

        def go_on() -> bool:
            return not (within_budget and self._time_is_up())

        with self._tuning(misses.values()) as tuning:
            while waiting and go_on():
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
                batch = {k: begun[k] for k in begun if self._lookup.still_missing(k)}
                if batch:
                    self._measure_batch(batch, go_on)

    def _measure_batch(
        self, questions: Mapping[RecordKey, Question], go_on: Callable[[], bool]
    ) -> None:
        with tempfile.TemporaryDirectory(dir=self.scratch(), prefix="measure-") as folder:
            jobs = [
                BuildJob(workload, target, Path(folder) / str(index))
                for index, (workload, target) in enumerate(questions.values())
            ]
            Batch(
                list(questions),
                jobs,
                self._builder_for(jobs),
                self._runner,
                self._policy,
                self.lock,
                go_on,
                self._recorder,
                self._stats,
            ).measure()

    def _tuning(self, questions: Iterable[Question]) -> Tuning:
        context = replace(self._context, work_dir=self.scratch() / "tuning")
        return Tuning(
            questions,
            context,
            self._config,
            self._policy,
            lambda text: self._recorder.report("tune", text),
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
            made.append(self._recorder.keep(key, result, model.description, backends))
        return made

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The device, for as long as the context lasts."""

        def waiting() -> None:
            self._recorder.report("wait", "another process is measuring on this device")

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
