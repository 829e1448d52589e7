"""Measures workloads: builds them in parallel, times them one at a time, records each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import OutOfTimeError, OutputError
from collage.backends.storage import exclusive
from collage.cost.base import Cost
from collage.cost.config import MeasureConfig
from collage.cost.database.record import Record, RecordKey
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import DevicePolicy
from collage.cost.measure.batch import Batch
from collage.cost.measure.builder import Builder, BuildJob
from collage.cost.measure.end_to_end import EndToEndQuestion, EndToEndTimer
from collage.cost.measure.model_builder import ModelJob, ModelResult, compile_models
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import NO_TIME, MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import RunJob, Runner, RunResult
from collage.cost.measure.tuning import Tuning
from collage.cost.processes.plugins import plugins_for
from collage.cost.progress import ProgressCallback, ProgressEvent
from collage.cost.reference import Sample
from collage.cost.workload.workload import Workload

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
    deadline : Deadline, optional
        Of workloads: what is under way then is given up, and nothing is recorded of it.

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
    ... )
    >>> measurer.measure({})
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
        deadline: Deadline = NEVER,
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

    def measure(self, misses: Mapping[RecordKey, Question]) -> None:
        """Record the cost of each, in this order, as long as there is time.

        Parameters
        ----------
        misses : mapping of RecordKey to (Workload, BackendTarget)
            What the log does not hold.

        Raises
        ------
        MeasurementError
            When no worker process can be started.
        OutputError
            When the scratch folder cannot be made.
        """
        if self._deadline.is_up:
            return
        self._recorder.wanted += len(misses)
        waiting = list(misses.items())
        size = self._policy.batch_size(self._parallel)
        begin = time.monotonic()
        # Leaving the tuning ends its processes, as leaving a batch ends those that work on it.
        with suppress(OutOfTimeError), self._tuning(misses.values()) as tuning:
            while waiting:
                self._deadline.check()
                tuning.close_after(begin + _TUNING_SHARE * (self._deadline.end - begin))
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
                    self._measure_batch(batch)

    def _measure_batch(self, questions: Mapping[RecordKey, Question]) -> None:
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
        self,
        jobs: Sequence[ModelJob],
        targets: Sequence[BackendTarget],
        deadline: Deadline = NEVER,
    ) -> list[ModelResult]:
        """Compile whole models that are going to be timed; see :func:`compile_models`.

        Parameters
        ----------
        jobs : sequence of ModelJob
            Variants of one model.
        targets : sequence of BackendTarget
            Everything that they may use.
        deadline : Deadline, optional
            Those that are not compiled then have an unknown result.
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
                try:
                    stack.enter_context(self.lock(deadline))
                except OutOfTimeError:
                    return [ModelResult.out_of_time() for _ in jobs]
            begin = time.perf_counter()
            self._progress(ProgressEvent("compile", 0, len(jobs), f"{len(jobs)} whole models"))
            results = compile_models(
                jobs, targets, self._context, self._config, self._parallel, done, deadline
            )
            self._stats.seconds_building += time.perf_counter() - begin
        return results

    def measure_models(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline = NEVER,
    ) -> list[RunResult]:
        """The end-to-end time of each model, all timed against each other; nothing is recorded.

        Parameters
        ----------
        question : EndToEndQuestion
            The models to compare, and on what.
        libraries : sequence of Path
            What each was linked into.
        deadline : Deadline, optional
            Those that had no turn by then have an unknown cost.
        """
        timer = EndToEndTimer(self._config, self.scratch(), self._progress, self._policy)
        try:
            with self.lock(deadline):
                begin = time.perf_counter()
                results = timer.measure(question, libraries, deadline)
                self._stats.seconds_running += time.perf_counter() - begin
        except OutOfTimeError:
            return [RunResult(NO_TIME) for _ in question.models]
        return results

    def record_models(
        self, question: EndToEndQuestion, keys: Sequence[RecordKey], results: Sequence[RunResult]
    ) -> list[Record]:
        """Record what :meth:`measure_models` gave; what is unknown is not kept.

        Parameters
        ----------
        question : EndToEndQuestion
            The models that were compared.
        keys : sequence of RecordKey
            Of their records.
        results : sequence of RunResult
            Of each.
        """
        made = []
        for model, key, result in zip(question.models, keys, results, strict=True):
            backends = ",".join(sorted({target.backend for target in model.targets}))
            made.append(self._recorder.keep(key, result, model.description, backends))
        return made

    def run(self, libraries: Sequence[Path], samples: Sequence[Sample]) -> list[RunResult]:
        """Check libraries in a warm process, one after the other; see the cost model.

        Parameters
        ----------
        libraries : sequence of Path
            Linked.
        samples : sequence of Sample
            By library.
        """
        results = []
        with tempfile.TemporaryDirectory(dir=self.scratch(), prefix="check-") as name:
            for index, (library, sample) in enumerate(zip(libraries, samples, strict=True)):
                folder = Path(name) / str(index)
                sample.save(folder)
                result = self._runner.run_sharing(RunJob(library, folder), self.lock)
                self._stats.seconds_running += result.run_sec
                results.append(result)
        return results

    def record_workload(
        self, key: RecordKey, workload: Workload, target: BackendTarget, cost: Cost
    ) -> None:
        """Record what was found out about a workload in some other way than by measuring it.

        Parameters
        ----------
        key : RecordKey
            Of its record.
        workload : Workload
            What is computed.
        target : BackendTarget
            What computes it.
        cost : Cost
            What was found out.
        """
        result = RunResult(cost)
        self._recorder.keep_workload(key, result, workload.describe(), target.backend, 0.0)

    @contextmanager
    def lock(self, deadline: Deadline | None = None) -> Iterator[None]:
        """The device, for as long as the context lasts.

        Parameters
        ----------
        deadline : Deadline, optional
            How long to wait for it; by default that of workloads.

        Raises
        ------
        OutOfTimeError
            When another process has it until then.
        """
        limit = self._deadline if deadline is None else deadline

        def waiting() -> None:
            self._recorder.report("wait", "another process is measuring on this device")

        asked = time.perf_counter()
        with exclusive(self._policy.kind, waiting, lambda: limit.is_up):
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
                self._context,
                self._config,
                self._plugins,
                self._parallel,
                self._policy,
                self._deadline,
            )
        return self._builder
