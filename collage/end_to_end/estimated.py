"""The end-to-end comparison without a device: estimated, not measured, time."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from collage.backends.contract import BuildContext, TargetSet
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostStatus
from collage.end_to_end._base import EndToEndComparison
from collage.end_to_end.evaluation import Evaluation, Lowered
from collage.search.dataflow import DataflowGraph

_REASON = "estimated, not measured"


class EstimatedComparison(EndToEndComparison):
    """Ranks whole partitionings by the sum of their candidates' costs.

    Parameters
    ----------
    mod, graph, targets, context
        As :class:`EndToEndComparison` has them.
    costs : WorkloadCosts
        Over the cost model that the user gave.

    Examples
    --------
    >>> from collage.end_to_end import Contender
    >>> from collage.search import greedy
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 1e-6})
    >>> contender = Contender("greedy", greedy(search.graph, search.targets))
    >>> search.comparison.compare([contender])[0].cost.median_sec
    1e-06
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        targets: TargetSet,
        context: BuildContext,
        *,
        costs: WorkloadCosts,
    ) -> None:
        super().__init__(mod, graph, targets, context)
        self._costs = costs

    def _evaluate(self, lowered: Sequence[Lowered]) -> list[Evaluation]:
        return [Evaluation.of(variant, self._cost(variant)) for variant in lowered]

    def _cost(self, lowered: Lowered) -> Cost:
        candidates = lowered.contender.partitioning.candidates
        seconds = self._costs.seconds(candidates)
        usable = [sec for sec in seconds if sec is not None and sec < float("inf")]
        if len(usable) < len(candidates):
            pairs = zip(candidates, seconds, strict=True)
            unusable = [c for c, sec in pairs if sec is None or sec == float("inf")]
            costs = self._costs.costs
            reasons = "; ".join(dict.fromkeys(costs[c].reason for c in unusable))
            return Cost(CostStatus.UNKNOWN, reason=reasons)
        total = sum(usable)
        return Cost(CostStatus.VALID, total, samples_sec=(total,), reason=_REASON)
