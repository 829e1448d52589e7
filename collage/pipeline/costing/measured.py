"""Costs that are measured, or were and are in the log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.deadline import NEVER
from collage.cost.device import Device
from collage.cost.measure.engine import Engine
from collage.cost.measure.replay import MeasureStats
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.processes.worker_program import prepare_workers
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Metric, Sample
from collage.cost.reference.rounding import fewest_digits
from collage.end_to_end import EndToEndComparison, MeasuredComparison
from collage.pipeline.costing._base import Costing
from collage.pipeline.costing.found_device import measured_device, replayed_device
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.background_sequence import BackgroundSequence
from collage.pipeline.inputs.samples import Inputs, Samples, digest, given_arrays, samples_of
from collage.pipeline.limits import Budget
from collage.pipeline.precision.targets import computes_in_bytes
from collage.pipeline.session import Session


class MeasuredCosting(Costing):
    """Costs are measured, or were and are in the log.

    Parameters
    ----------
    session : Session
        Targets, log and folders.
    budget : Budget, optional
        What is measured, compiled and timed stays within it.
    given : MeasuredCostModel, optional
        The user's own, in place of one over the session's log.
    engine : Engine, optional
        Whose workers build and time; by default this machine's.

    Raises
    ------
    ReplayMissError, LogError
        In a replay, when the log is of no device that the targets are for, or of several.

    Examples
    --------
    >>> from collage.pipeline import open_session
    >>> costing = MeasuredCosting(open_session(["llvm"], num_threads=2))
    >>> with costing.open():
    ...     sorted(costing.device()), costing.device()["threads"]
    (['cores', 'denormals', 'name', 'threads'], '2')
    """

    def __init__(
        self,
        session: Session,
        *,
        budget: Budget | None = None,
        given: MeasuredCostModel | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._session = session
        self._engine = engine
        self._budget = budget or Budget()
        self._given = given
        self._samples: Samples | None = None
        self._recorded = replayed_device(session) if given is None else None
        self._device: Device | None = None
        self._model: MeasuredCostModel | None = None
        self._before = MeasureStats()
        self._limit = NEVER

    @contextmanager
    def open(self) -> Iterator[CostModel]:
        """The cost model, whose workers are found.

        Raises
        ------
        TargetError
            When they have no device that runs what is compiled for the targets.
        MeasurementError
            When they cannot be reached.
        """
        session, measuring = self._session, self._budget.measuring
        if not session.replay and not len(session.database):
            # Something is going to be measured, as soon as the model is read.
            prepare_workers()
        if self._given is None:
            with MeasuredCostModel(
                session.context,
                session.database,
                engine=self._engine,
                device=self._recorded,
                replay_only=session.replay,
                progress=session.progress,
            ) as model:
                self._opened(model)
                # Workers have to be found, whatever the time: without any there is no answer.
                model.deadline = measuring
                yield model
            return
        self._limit = self._given.deadline
        self._given.deadline = self._limit.or_earlier(measuring)
        try:
            yield self._opened(self._given)
        finally:
            self._given.deadline = self._limit

    def begin(self, budget: Budget) -> None:
        """See the base class."""
        assert self._model is not None, "not opened yet"
        self._budget, self._before = budget, self._model.stats.copy()
        self._model.deadline = self._limit.or_earlier(budget.measuring)

    def _opened(self, model: MeasuredCostModel) -> MeasuredCostModel:
        # Others may ask the model from another thread.
        self._device = measured_device(model, self._session.targets)
        self._model, self._before = model, model.stats.copy()
        return model

    def comparison(
        self,
        imported: Imported,
        costs: WorkloadCosts,
        seed: int,
        inputs: Inputs | None = None,
        max_error: float | None = None,
        metric: Metric | None = None,
    ) -> EndToEndComparison:
        """A comparison by times.

        Raises
        ------
        InputError
            When the user's inputs do not fit.
        """
        assert self._model is not None, "not opened yet"
        form = fewest_digits(self._session.targets)
        given = None if inputs is None else given_arrays(imported.inputs, inputs, imported.ranges)
        trying = self._budget.trying

        def samples() -> Sequence[Sample]:
            found = samples_of(
                *(imported.mod, imported.inputs, given, seed, form, imported.ranges),
                until=trying,
            )
            in_bytes = computes_in_bytes(self._session.targets)
            if max_error is not None and (in_bytes or metric is not None):
                found = found.judged_by(max_error, metric)
            self._samples = found
            for remark in found.remarks:
                self._session.progress(ProgressEvent("inputs", 0, 0, remark))
            return found.samples

        said = [] if given is None else [digest(given)]
        said += [] if metric is None else [metric.key]
        return MeasuredComparison(
            imported.mod,
            imported.graph,
            self._session.targets,
            self._session.context,
            model=self._model,
            samples=BackgroundSequence(samples),
            data=" ".join(said),
            metric="" if metric is None else metric.name,
            compiling=self._budget.compiling,
            timing=self._budget.timing,
            sharing=trying,
            max_error=math.inf if max_error is None else max_error,
        )

    @property
    def samples(self) -> Samples | None:
        return self._samples

    @property
    def builds_beside(self) -> bool:
        assert self._model is not None, "not opened yet"
        return self._model.builds_beside(self._session.targets)

    def device(self) -> Mapping[str, str]:
        assert self._device is not None, "not opened yet"
        context = self._session.context
        facts = {
            "name": self._device.name,
            "cores": str(self._device.cores),
            "threads": str(context.num_threads or self._device.cores),
            "denormals": self._session.targets.device.denormals(context),
        }
        return {name: fact for name, fact in facts.items() if fact}

    def stats(self) -> MeasureStats:
        assert self._model is not None, "not opened yet"
        return self._model.stats.since(self._before)
