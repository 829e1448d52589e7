"""A cost model with fixed costs, for tests and for what-if questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage.backends.base import BackendTarget
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.workload import Workload


class TableCostModel(CostModel):
    """Answers from a table, never measures.

    Parameters
    ----------
    costs : mapping of (str, str) to Cost or float
        By workload key and backend name; a bare number is a valid cost in seconds. What is not in
        the table is unknown.

    Attributes
    ----------
    asked : list of (str, str)
        Every question so far, in order.
    """

    def __init__(self, costs: Mapping[tuple[str, str], Cost | float]) -> None:
        self._costs = dict(costs)
        self.asked: list[tuple[str, str]] = []

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """See :class:`CostModel`."""
        answers = []
        for workload, target in zip(workloads, targets, strict=True):
            question = (workload.key, target.backend)
            self.asked.append(question)
            found = self._costs.get(question, Cost(CostStatus.UNKNOWN, reason="not in the table"))
            if not isinstance(found, Cost):
                found = Cost(CostStatus.VALID, found, samples_sec=(found,))
            answers.append(found)
        return answers
