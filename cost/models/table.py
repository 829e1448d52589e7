"""A cost model with fixed costs, for tests and for what-if questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage.backends.contract import BackendTarget
from collage.cost.base import Cost, CostModel, CostStatus, Overheads
from collage.cost.workload.workload import Workload


class TableCostModel(CostModel):
    """Answers from a table, never measures.

    Parameters
    ----------
    costs : mapping of (str, str) to Cost or float
        By workload and backend name; a workload is named by its key or by its description
        (``Workload.describe()``), the key counts first. A bare number is a valid cost in seconds.
    default : CostModel, optional
        Who answers what is not in the table, for example a
        :class:`collage.cost.models.roofline.RooflineCostModel`; without one it is unknown.

    Attributes
    ----------
    asked : list of (str, str)
        Every question so far, in order: workload key and backend name.

    Examples
    --------
    A search over these costs:

    >>> import collage
    >>> from collage.cost import TableCostModel
    >>> table = TableCostModel({("relu 8x8", "tvm"): 1e-6, ("relu 8x8", "onednn"): 5e-7})
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> relu = graph([(8, 8)], lambda emit, x: op.nn.relu(x))
    >>> result = collage.optimize(relu, ["llvm"], cost_model=table)
    >>> result.partitioning.seconds
    1e-06
    """

    def __init__(
        self, costs: Mapping[tuple[str, str], Cost | float], default: CostModel | None = None
    ) -> None:
        self._costs = dict(costs)
        self._default = default
        self.asked: list[tuple[str, str]] = []

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """What the table says of each workload on the target at the same position."""
        return [
            self._answer(workload, target)
            for workload, target in zip(workloads, targets, strict=True)
        ]

    def overheads(self, target: BackendTarget) -> Overheads:
        """Those of the default model; none without one."""
        return (
            super().overheads(target) if self._default is None else self._default.overheads(target)
        )

    def _answer(self, workload: Workload, target: BackendTarget) -> Cost:
        self.asked.append((workload.key, target.name))
        for name in (workload.key, workload.describe()):
            found = self._costs.get((name, target.name))
            if isinstance(found, Cost):
                return found
            if found is not None:
                return Cost(CostStatus.VALID, found, samples_sec=(found,))
        if self._default is not None:
            return self._default.estimate([workload], [target])[0]
        return Cost(CostStatus.UNKNOWN, reason="not in the table")
