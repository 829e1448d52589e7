"""Has whole models compiled, timed against each other, and recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import OutOfTimeError
from collage.backends.storage import exclusive
from collage.backends.toolchain.children.freed_memory import return_freed_memory
from collage.backends.toolchain.children.mapped_pages import forget_pages
from collage.cost.database.record import Record, RecordKey
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.engine import Work, Workers
from collage.cost.measure.places.holding import Holding
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import NO_TIME, MeasureStats
from collage.cost.measure.runner import RunResult
from collage.cost.measure.scratch import make_scratch
from collage.cost.measure.watch import WHOLE_MODELS, Watch
from collage.cost.measure.whole_models.model_builder import (
    ModelDone,
    ModelJob,
    ModelResult,
    compile_models,
    nobody_waits,
)
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion
from collage.cost.progress import ProgressCallback, ProgressEvent


class ModelScheduler:
    """Whole models on one kind of device.

    Parameters
    ----------
    work : Work
        Folders, limits, and the kind of device.
    workers : Workers
        Whose first place times them.
    recorder : Recorder
        Gets the results.
    stats : MeasureStats
        Gets the seconds.
    watch : Watch
        Notes who is at work.
    holding : Holding
        Keeps others from devices.
    progress : callable
        Informed of each model compiled, and of each turn.
    """

    def __init__(
        self,
        work: Work,
        workers: Workers,
        recorder: Recorder,
        stats: MeasureStats,
        watch: Watch,
        holding: Holding,
        progress: ProgressCallback,
    ) -> None:
        self._work, self._workers, self._recorder = work, workers, recorder
        self._stats, self._watch, self._holding = stats, watch, holding
        self._progress = progress

    def compile(
        self,
        jobs: Sequence[ModelJob],
        targets: Sequence[BackendTarget],
        deadline: Deadline = NEVER,
        done: ModelDone = nobody_waits,
        sharing: Deadline = NEVER,
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
        done : callable, optional
            Given each result, by the index of its job, as soon as it is there.
        sharing : Deadline, optional
            When others' measuring on these cores is no longer waited for.

        Returns
        -------
        list of ModelResult
            In the order of the jobs; one for which no time was left says so.
        """
        ended = 0

        def count(index: int, result: ModelResult) -> None:
            nonlocal ended
            ended += 1
            reason = f": {result.reason}" if result.reason else ""
            self._progress(
                ProgressEvent("compile", ended, len(jobs), f"{jobs[index].description}{reason}")
            )
            done(index, result)

        kind = self._work.policy.kind
        with ExitStack() as stack:
            if not kind.compiles_beside:
                # The compiler would run on the very cores that another search times on, or a
                # worker on this machine: whole models are compiled here, whoever times them.
                try:
                    held = self._holding.device(partial(exclusive, kind), deadline, sharing)
                    stack.enter_context(held)
                except OutOfTimeError:
                    return [ModelResult.out_of_time() for _ in jobs]
            begin = time.perf_counter()
            self._progress(ProgressEvent("compile", 0, len(jobs), f"{len(jobs)} whole models"))
            results = compile_models(
                *(jobs, targets, self._work.context, self._work.config),
                # They are compiled here, however many builders there are elsewhere.
                *(self._work.parallel_builds or self._work.policy.builders(), count, deadline),
            )
            self._stats.seconds_building += time.perf_counter() - begin
        return results

    def measure(
        self,
        question: EndToEndQuestion,
        libraries: Sequence[Path],
        deadline: Deadline = NEVER,
        sharing: Deadline = NEVER,
    ) -> list[RunResult]:
        """The end-to-end time of each model, all timed against each other; nothing is recorded.

        Parameters
        ----------
        question, libraries
            As :meth:`ModelTimer.measure` takes them.
        deadline : Deadline, optional
            Those that had no turn by then have an unknown cost.
        sharing : Deadline, optional
            When others that time on this device are no longer waited for.

        Returns
        -------
        list of RunResult
            In the order of the question's models; all of unknown cost when the time was up.
        """
        make_scratch(self._work.context)
        first = self._workers.places[0]
        timer = self._workers.timer(self._progress)
        try:
            with (
                timer.begun(question, deadline),
                self._holding.place(first, deadline, sharing),
                self._watch.measuring(),
            ):
                begin = time.perf_counter()
                # All of the models are going to be in memory at once.
                return_freed_memory()
                forget_pages(self._work.context.work_dir)
                with self._watch.timing(first.name, WHOLE_MODELS):
                    results = timer.measure(question, libraries, deadline)
                self._stats.seconds_running += time.perf_counter() - begin
        except OutOfTimeError:
            return [RunResult(NO_TIME) for _ in question.models]
        return results

    def record(
        self, question: EndToEndQuestion, keys: Sequence[RecordKey], results: Sequence[RunResult]
    ) -> list[Record]:
        """Record what :meth:`measure` gave; what is unknown is not kept.

        Parameters
        ----------
        question : EndToEndQuestion
            The models that were compared.
        keys : sequence of RecordKey
            Of their records.
        results : sequence of RunResult
            Of each.

        Returns
        -------
        list of Record
            In the order of the question's models, those that are not kept too.
        """
        made = []
        for model, key, result in zip(question.models, keys, results, strict=True):
            backends = ",".join(sorted({target.name for target in model.targets}))
            made.append(self._recorder.keep(key, result, model.description, backends))
        return made
