"""Measures workloads: has them built and timed by an engine's workers, records each."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import CollageError, OutOfTimeError
from collage.cost.database.record import RecordKey
from collage.cost.deadline import Deadline
from collage.cost.device import Device
from collage.cost.measure.batch import Batch
from collage.cost.measure.builder import Builder
from collage.cost.measure.engine import Engine, Place, Work
from collage.cost.measure.feed import Feed, MoreQuestions, SettledError, no_more_questions
from collage.cost.measure.interleaved.shelf import Shelf
from collage.cost.measure.interleaved.together import TogetherQuestion, TogetherScheduler
from collage.cost.measure.places.comparing import Comparing
from collage.cost.measure.places.holding import Holding
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.scratch import make_scratch
from collage.cost.measure.tuning import Tuning
from collage.cost.measure.watch import CHECKS, PlaceUse, Watch
from collage.cost.measure.whole_models.model_scheduler import ModelScheduler
from collage.cost.processes.plugins import plugins_for
from collage.cost.progress import ProgressCallback
from collage.cost.reference import Sample

_PER_WORKER = 16
"""Workloads under way for each of several workers."""


class Measurer:
    """Builds, times and records, on one kind of device.

    Parameters
    ----------
    engine : Engine
        Whose workers build and time; closed with the measurer.
    work : Work
        Folders, limits, and the kind of device.
    lookup : RecordLookup
        Where records go.
    stats : MeasureStats
        Gets the seconds.
    progress : callable
        Informed of each workload measured.
    plugins : sequence of str
        What builders register besides what targets ask for.

    Attributes
    ----------
    models : ModelScheduler
        Does the same for whole models.
    recorder : Recorder
        Keeps what was measured, or found out in some other way.

    Examples
    --------
    >>> from collage.backends.contract import BuildContext
    >>> from collage.cost.config import MeasureConfig
    >>> from collage.cost.database import JsonLinesDatabase
    >>> from collage.cost.device import CPU_POLICY
    >>> from collage.cost.engines import LocalEngine
    >>> work = Work(CPU_POLICY, BuildContext(Path("cache"), Path("work")), MeasureConfig())
    >>> stats = MeasureStats()
    >>> lookup = RecordLookup(JsonLinesDatabase(), stats)
    >>> measurer = Measurer(LocalEngine(), work, lookup, stats, print)
    >>> measurer.measure({})
    >>> measurer.close()
    >>> stats.measured
    0
    """

    def __init__(
        self,
        engine: Engine,
        work: Work,
        lookup: RecordLookup,
        stats: MeasureStats,
        progress: ProgressCallback,
        plugins: Sequence[str] = (),
    ) -> None:
        self._given_up_at = math.inf
        given_up = Deadline(lambda: self._given_up_at)
        self._watch = Watch(stats.places, self._took)
        self.recorder = Recorder(lookup, progress, self._watch.workforce)
        self._work = replace(work, deadline=work.deadline.or_earlier(given_up), say=self._say)
        self._workers = engine.open(self._work)
        if self._workers.tunes:
            self._work = self._work.on(self._workers.device)
        self._lookup = lookup
        self._stats = stats
        self._plugins = list(plugins)
        self._builder: Builder | None = None
        self._pool: RunnerPool | None = None
        self._comparing: Comparing | None = None
        stats.builders = self._workers.parallel_builds
        for place in self._workers.places:
            stats.places.setdefault(place.name, PlaceUse())
        self._holding = Holding(self._work.deadline, stats, self._watch, self.recorder)
        self.models = ModelScheduler(
            *(self._work, self._workers, self.recorder, stats),
            *(self._watch, self._holding, progress),
        )
        self._shelf = Shelf(self._scratch)
        self._together = TogetherScheduler(
            *(self._work, self._workers, self._shelf, self._holding),
            *(self.recorder, stats, self._watch),
        )

    @property
    def at_once(self) -> int:
        """Workloads with which nobody is idle: for each of several places one to time, and, where
        there are builders for that, one that is built meanwhile."""
        places = len(self._workers.places)
        return 1 if places == 1 else max(places, min(self._workers.parallel_builds, 2 * places))

    @property
    def device(self) -> Device:
        """What is measured on."""
        return self._workers.device

    @property
    def builds_beside(self) -> bool:
        """Whether compiling on this machine leaves alone what is timed."""
        return self._workers.builds_beside

    def close(self) -> None:
        """End the worker processes; the next measurement starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._workers.close()
        if self._comparing is not None:
            self._comparing.close()
            self._comparing = None
        if self._builder is not None:
            self._builder.close()
            self._builder = None
        self._shelf.clear()

    def measure(
        self,
        misses: Mapping[RecordKey, Question],
        more: MoreQuestions = no_more_questions,
        targets: Iterable[BackendTarget] = (),
    ) -> None:
        """Record the cost of each, in this order, as long as there is time.

        Parameters
        ----------
        misses : mapping of RecordKey to (Workload, BackendTarget)
            What the log does not hold.
        more : callable, optional
            Asked whenever something became known, and somebody would be idle, what else to measure;
            by nobody else than this thread. Once it wants nothing, what is under way is given up.
        targets : iterable of BackendTarget
            All that it may ask about.

        Raises
        ------
        MeasurementError
            When no worker process can be started.
        OutputError
            When the scratch folder cannot be made.
        """
        if self._work.deadline.is_up:
            return
        with self._watch.measuring():
            self._measure(misses, more, [*(target for _, target in misses.values()), *targets])

    def measure_together(self, question: TogetherQuestion) -> list[RunResult] | None:
        """Time candidates in the same rounds; see :meth:`TogetherScheduler.measure`."""
        return self._together.measure(question, self._builder_for, self._ready_pool())

    def _measure(
        self,
        misses: Mapping[RecordKey, Question],
        more: MoreQuestions,
        targets: Sequence[BackendTarget],
    ) -> None:
        self.recorder.wanted += len(misses)
        comparing = self._ready_comparing()
        pool, builder = self._ready_pool(), self._builder_for(targets)
        # Leaving the tuning ends its processes, as leaving a batch ends those that work on it.
        with (
            suppress(OutOfTimeError, SettledError),
            self._tuning(misses.values()) as tuning,
            tempfile.TemporaryDirectory(dir=self._scratch(), prefix="measure-") as folder,
        ):
            if not comparing.has_begun and len(self._workers.places) > 1:
                comparing.begin(pool, targets[0].device, builder)
            size, deadline = self._batch_size(), self._work.deadline
            feed = Feed(
                *(misses, more, self.at_once, size, self._lookup, self.recorder),
                *(tuning, comparing, deadline),
            )
            batch = Batch(
                *(Path(folder), feed, builder, pool, self._holding.place, self.recorder),
                *(self._stats, self._watch, comparing.timed, deadline, self._shelf),
            )
            try:
                if self._workers.builds_beside:
                    batch.time_while_building()
                else:
                    batch.build_then_time(self._first, size)
            except BaseException:
                self._give_up(pool)
                raise

    def _ready_comparing(self) -> Comparing:
        """Who says whether places compare; asked only where there are several."""
        if self._comparing is None:
            work = self._work
            self._comparing = Comparing(
                work.policy,
                work.comparable,
                self._scratch(),
                self._holding.place,
                self._say,
            )
            if self._workers.tunes and len(self._workers.places) > 1:
                # Tuning, which begins next, computes on all of them.
                self._comparing.look_for_others(self._workers.places)
        return self._comparing

    @property
    def _first(self) -> Place:
        return self._workers.places[0]

    def _give_up(self, pool: RunnerPool) -> None:
        """End what is under way, whose files go and whose results nobody reads."""
        pool.drop()
        self._watch.drop()
        self._given_up_at = -math.inf
        try:
            with suppress(CollageError):
                pool.wait()
        finally:
            self._given_up_at = math.inf

    def _batch_size(self) -> int:
        """Enough to keep everybody busy, and little to lose."""
        builders, places = self._workers.parallel_builds, len(self._workers.places)
        alone = self._work.policy.batch_size(builders)
        return alone if places == 1 else max(alone, _PER_WORKER * max(builders, places))

    def _ready_pool(self) -> RunnerPool:
        if self._pool is None:
            places = self._workers.places
            for name, reason in self._workers.unused.items():
                self._say(f"{name} is not used: {reason}")
            self._pool = RunnerPool(places, self._report_lost, lambda: self._workers.places)
            for _ in places:
                # What is lost already is lost without a candidate.
                self._pool.submit(lambda place: place.runner.warm_up(), lambda reason: None)
            if len(places) == 1 and self._workers.builds_beside:
                self._pool.submit(self._look_for_others, lambda reason: None)
        return self._pool

    def _look_for_others(self, place: Place) -> None:
        """Where there is one place only, what disturbs it can be said, not avoided."""
        with self._holding.place(place):
            others = place.runner.others()
        if others:
            self._say(f"{place.name}: {others}")

    def _say(self, text: str) -> None:
        self.recorder.report("places", text)

    def _report_lost(self, place: Place, reason: str) -> None:
        self._watch.leave_out(place.name, reason)
        self.recorder.report("lost", f"{place.name} is left out: {reason}")

    def _scratch(self) -> Path:
        return make_scratch(self._work.context)

    def _took(self, seconds: float) -> None:
        self._stats.seconds_measuring += seconds

    def _tuning(self, questions: Iterable[Question]) -> Tuning:
        context = replace(self._work.context, work_dir=self._scratch() / "tuning")
        return Tuning(
            questions if self._workers.tunes else (),
            context,
            self._work.config,
            self._work.policy,
            lambda text: self.recorder.report("tune", text),
        )

    def run(self, libraries: Sequence[Path], samples: Sequence[Sample]) -> list[RunResult]:
        """Check libraries in a warm process, one after the other; see the cost model.

        Parameters
        ----------
        libraries : sequence of Path
            Linked.
        samples : sequence of Sample
            By library.

        Returns
        -------
        list of RunResult
            In the order of the libraries.
        """
        results = []
        pool = self._ready_pool()
        with tempfile.TemporaryDirectory(dir=self._scratch(), prefix="check-") as name:
            for index, (library, sample) in enumerate(zip(libraries, samples, strict=True)):
                job = RunJob(library, Path(name) / str(index))
                sample.save(job.sample)

                def check(place: Place, job: RunJob = job) -> None:
                    with self._watch.measuring(), self._watch.timing(place.name, CHECKS):
                        result = place.runner.run_sharing(job, lambda: self._holding.place(place))
                    self._stats.seconds_running += result.run_sec
                    results.append(result)

                pool.submit(check)
                pool.wait()
        return results

    def _builder_for(self, targets: Sequence[BackendTarget]) -> Builder:
        plugins = plugins_for(targets)
        if self._builder is not None and not set(plugins) <= set(self._plugins):
            self._builder.close()
            self._builder = None
        if self._builder is None:
            self._plugins = sorted({*self._plugins, *plugins})
            self._builder = self._workers.builder(self._plugins)
        return self._builder
