"""Who says what candidates cost, and how whole models are compared: by measuring or by estimating.

The choice is made once, here; the other stages ask a :class:`Costing`.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from collage.backends.contract import RunsElsewhere, TargetSet, members_of
from collage.backends.contract.errors import LogError, TargetError, WorkersError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.deadline import NEVER
from collage.cost.device import Device
from collage.cost.measure.engine import Engine
from collage.cost.measure.replay import MeasureStats
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample
from collage.cost.reference.rounding import fewest_digits
from collage.end_to_end import EndToEndComparison, EstimatedComparison, MeasuredComparison
from collage.pipeline.found_device import measured_device, replayed_device
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.later import Later
from collage.pipeline.inputs.samples import Inputs, Samples, digest, given_arrays, samples_of
from collage.pipeline.limits import Budget
from collage.pipeline.session import Session


class Costing(ABC):
    """Gives a cost model, and what else follows from which one it is.

    Examples
    --------
    >>> from collage.cost import TableCostModel
    >>> from collage.pipeline import choose_costing, open_session
    >>> costing = choose_costing(open_session(["llvm"]), TableCostModel({}))
    >>> with costing.open() as model:
    ...     type(model).__name__, costing.stats().measured
    ('TableCostModel', 0)
    """

    @abstractmethod
    def open(self) -> AbstractContextManager[CostModel]:
        """The cost model.

        Leaving the context ends what was begun; models that the user gave stay the user's to close.
        """

    @abstractmethod
    def comparison(
        self, imported: Imported, costs: WorkloadCosts, seed: int, inputs: Inputs | None = None
    ) -> EndToEndComparison:
        """What compares whole models; asked for while this is open.

        Parameters
        ----------
        imported : Imported
            The model.
        costs : WorkloadCosts
            Over the cost model that :meth:`open` gave.
        seed : int
            Of the inputs that whole models are run on where none are given.
        inputs : mapping or sequence of mapping, optional
            The user's samples, arrays by input name.
        """

    def begin(self, budget: Budget) -> None:  # noqa: B027 (estimating takes no time)
        """From now on another function is at it, with a budget of its own.

        Parameters
        ----------
        budget : Budget
            What is measured, compiled and timed from now on stays within it.
        """

    @property
    def samples(self) -> Samples | None:
        """What whole models are compared by; None where nothing is run."""
        return None

    @abstractmethod
    def device(self) -> Mapping[str, str]:
        """What the report says of the device; asked for after this was opened."""

    @property
    def builds_beside(self) -> bool:
        """Whether compiling here leaves alone what is timed."""
        return True

    def stats(self) -> MeasureStats:
        """What was measured since :meth:`open`, or since :meth:`begin`."""
        return MeasureStats()


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
        """See the base class.

        Parameters
        ----------
        budget : Budget
            What is measured, compiled and timed from now on stays within it.
        """
        assert self._model is not None, "not opened yet"
        self._budget, self._before = budget, self._model.stats.copy()
        self._model.deadline = self._limit.or_earlier(budget.measuring)

    def _opened(self, model: MeasuredCostModel) -> MeasuredCostModel:
        # Others may ask the model from another thread.
        self._device = measured_device(model, self._session.targets)
        self._model, self._before = model, model.stats.copy()
        return model

    def comparison(
        self, imported: Imported, costs: WorkloadCosts, seed: int, inputs: Inputs | None = None
    ) -> EndToEndComparison:
        """A comparison by times.

        Parameters
        ----------
        imported : Imported
            The model.
        costs : WorkloadCosts
            Not asked: whole models are timed.
        seed : int
            Of the inputs that whole models are run on where none are given.
        inputs : mapping or sequence of mapping, optional
            The user's samples, arrays by input name.

        Raises
        ------
        InputError
            When the user's inputs do not fit.
        """
        assert self._model is not None, "not opened yet"
        form = fewest_digits(self._session.targets)
        given = None if inputs is None else given_arrays(imported.inputs, inputs)

        def samples() -> Sequence[Sample]:
            found = self._samples = samples_of(
                *(imported.mod, imported.inputs, given, seed, form, imported.ranges)
            )
            for remark in found.remarks:
                self._session.progress(ProgressEvent("inputs", 0, 0, remark))
            return found.samples

        return MeasuredComparison(
            imported.mod,
            imported.graph,
            self._session.targets,
            self._session.context,
            model=self._model,
            samples=Later(samples),
            data="" if given is None else digest(given),
            compiling=self._budget.compiling,
            timing=self._budget.timing,
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


class EstimatedCosting(Costing):
    """Costs are what a model of the user's says; nothing is run.

    Parameters
    ----------
    session : Session
        Targets and folders.
    model : CostModel
        The user's.

    Examples
    --------
    >>> from collage.cost import TableCostModel
    >>> from collage.pipeline import open_session
    >>> EstimatedCosting(open_session(["llvm"]), TableCostModel({})).device()["estimated"]
    'yes'
    """

    def __init__(self, session: Session, model: CostModel) -> None:
        self._session = session
        self._model = model

    def open(self) -> AbstractContextManager[CostModel]:
        return nullcontext(self._model)

    def comparison(
        self, imported: Imported, costs: WorkloadCosts, seed: int, inputs: Inputs | None = None
    ) -> EndToEndComparison:
        """A comparison by estimates.

        Parameters
        ----------
        imported : Imported
            The model.
        costs : WorkloadCosts
            What partitions are estimated to take.
        seed : int
            Of nothing: nothing is run.
        inputs : mapping or sequence of mapping, optional
            Only looked at.

        Raises
        ------
        InputError
            When the user's inputs do not fit.
        """
        if inputs is not None:
            given_arrays(imported.inputs, inputs)
        return EstimatedComparison(
            imported.mod,
            imported.graph,
            self._session.targets,
            self._session.context,
            costs=costs,
        )

    def device(self) -> Mapping[str, str]:
        targets = self._session.targets
        return {"name": targets.device.architecture(targets.native.device), "estimated": "yes"}


def choose_costing(
    session: Session,
    cost_model: CostModel | None,
    budget: Budget | None = None,
    engine: Engine | None = None,
) -> Costing:
    """Measuring, unless the user gave a cost model that estimates.

    Parameters
    ----------
    session : Session
        Targets, log and folders.
    cost_model : CostModel or None
        What the user gave.
    budget : Budget, optional
        What is measured, compiled and timed stays within it.
    engine : Engine, optional
        Whose workers build and time; by default this machine's.

    Raises
    ------
    LogError
        When a cost model is given for a replay, in which the log alone answers.
    WorkersError
        When workers are given where nothing is measured, or by a model with its own.
    TargetError
        When a given model measures with another number of threads than the bundle would state, or
        this machine is to measure what it cannot run.

    Examples
    --------
    >>> from collage.cost import TableCostModel
    >>> from collage.pipeline import open_session
    >>> session = open_session(["llvm"])
    >>> type(choose_costing(session, None)).__name__
    'MeasuredCosting'
    >>> type(choose_costing(session, TableCostModel({}))).__name__
    'EstimatedCosting'
    """
    if engine is not None and session.replay:
        raise WorkersError(
            "a replay takes every cost from the log, so workers would have nothing to do: leave "
            "out replay=True or workers=, on the command line --replay or --workers",
            value=type(engine).__name__,
        )
    if engine is not None and cost_model is not None:
        raise WorkersError(
            "a cost model has workers of its own or needs none: leave out cost_model= or "
            "workers=, on the command line --estimate or --workers",
            value=type(engine).__name__,
        )
    if cost_model is None and engine is None and not session.replay:
        _require_fit_here(session.targets)
    if cost_model is None:
        return MeasuredCosting(session, budget=budget, engine=engine)
    if session.replay:
        raise LogError(
            "a replay takes every cost from the log, so a cost model would never be asked: "
            "leave out replay=True or cost_model=",
            value=type(cost_model).__name__,
        )
    if isinstance(cost_model, MeasuredCostModel):
        if cost_model.num_threads != session.context.num_threads:
            raise TargetError(
                f"the cost model builds and measures with num_threads={cost_model.num_threads}, "
                f"but the model is optimized for num_threads={session.context.num_threads}: give "
                "both the same",
                value=cost_model.num_threads,
            )
        if cost_model.ieee_denormals != session.context.ieee_denormals:
            raise TargetError(
                f"the cost model measures with ieee_denormals={cost_model.ieee_denormals}, but the "
                f"model is optimized with ieee_denormals={session.context.ieee_denormals}: give "
                "both the same",
                value=cost_model.ieee_denormals,
            )
        return MeasuredCosting(session, budget=budget, given=cost_model)
    return EstimatedCosting(session, cost_model)


def _require_fit_here(targets: TargetSet) -> None:
    """Refuse to measure here what runs elsewhere."""
    reasons = [
        (target.name, backend.unfit_here(target))
        for backend, target in members_of(RunsElsewhere, targets)
    ]
    machine = targets.device.machine(targets.native.device)
    if machine != platform.machine():
        triple = targets.native.device.attrs["mtriple"]
        reasons.append((targets.native.name, f"'{triple}' is not {platform.machine()}"))
    for name, reason in reasons:
        if reason:
            raise TargetError(
                f"target '{name}' cannot be measured on this machine: {reason}; give an estimate "
                "as cost_model=, for example a RooflineCostModel, or workers= that have such a "
                "device",
                value=name,
            )
