"""Costs that a model of the user's says; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from collage.backends.contract.errors import PrecisionError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.reference import Metric
from collage.end_to_end import EndToEndComparison, EstimatedComparison
from collage.pipeline.costing._base import Costing
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.samples import Inputs, given_arrays
from collage.pipeline.session import Session


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
        self,
        imported: Imported,
        costs: WorkloadCosts,
        seed: int,
        inputs: Inputs | None = None,
        max_error: float | None = None,
        metric: Metric | None = None,
    ) -> EndToEndComparison:
        """A comparison by estimates.

        Raises
        ------
        InputError
            When the user's inputs do not fit.
        PrecisionError
            When an error is allowed.
        """
        if max_error is not None:
            raise PrecisionError(
                "max_error needs whole models to be run, and costs are estimated here",
                value=max_error,
            )
        if inputs is not None:
            given_arrays(imported.inputs, inputs, imported.ranges)
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
