"""Who says what candidates cost, and how whole models are compared: what stages ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.measure.replay import MeasureStats
from collage.cost.reference import Metric
from collage.end_to_end import EndToEndComparison
from collage.pipeline.imported import Imported
from collage.pipeline.inputs.samples import Inputs, Samples
from collage.pipeline.limits import Budget


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
        self,
        imported: Imported,
        costs: WorkloadCosts,
        seed: int,
        inputs: Inputs | None = None,
        max_error: float | None = None,
        metric: Metric | None = None,
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
        max_error : float, optional
            What is allowed beside rounding to the model's own types.
        metric : Metric, optional
            What that is in terms of; by default outputs' largest difference.

        Returns
        -------
        EndToEndComparison
            Measured or estimated, as the costing is; not to be used once it is closed.
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
