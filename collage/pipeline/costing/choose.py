"""Measuring or estimating: the choice is made once, here."""

from __future__ import annotations

import platform

from collage.backends.contract import RunsElsewhere, TargetSet, members_of
from collage.backends.contract.errors import LogError, TargetError, WorkersError
from collage.cost.base import CostModel
from collage.cost.measure.engine import Engine
from collage.cost.models.measured import MeasuredCostModel
from collage.pipeline.costing._base import Costing
from collage.pipeline.costing.estimated import EstimatedCosting
from collage.pipeline.costing.measured import MeasuredCosting
from collage.pipeline.limits import Budget
from collage.pipeline.session import Session


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

    Returns
    -------
    Costing
        Not opened yet: nothing is started until it is.

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
