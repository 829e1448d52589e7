"""The end of a search without a device: contenders compared by estimated, not measured, time."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from collage.backends.compile import CompiledLibrary, compile_module, stage_libraries
from collage.backends.contract.base import BackendTarget, BuildContext
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostStatus
from collage.cost.database.keys import ModuleKeys
from collage.end_to_end.measured import LIBRARY, Contender, Standing
from collage.passes.lower import lower
from collage.search.dataflow import DataflowGraph

REASON = "estimated, not measured"


class EstimatedGate:
    """Ranks whole partitionings by the sum of their candidates' costs, and compiles the winner.

    Parameters
    ----------
    mod : tvm.IRModule
        The normalized module.
    graph : DataflowGraph
        Of its ``main``.
    targets : sequence of BackendTarget
        Everything a partitioning may use.
    context : BuildContext
        The library is kept under its ``work_dir``.
    costs : WorkloadCosts
        Over the cost model that the user gave.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        targets: Sequence[BackendTarget],
        context: BuildContext,
        costs: WorkloadCosts,
    ) -> None:
        self._mod = mod
        self._graph = graph
        self._targets = tuple(targets)
        self._context = context
        self._costs = costs
        self._keys = ModuleKeys()

    def measure(self, contenders: Sequence[Contender]) -> list[Standing]:
        """The standing of each contender, in the order given."""
        return [self._standing(contender) for contender in contenders]

    def _standing(self, contender: Contender) -> Standing:
        module = lower(self._mod, self._graph, contender.partitioning)
        candidates = contender.partitioning.candidates
        seconds = self._costs.seconds(candidates)
        unusable = [c for c, sec in zip(candidates, seconds, strict=True) if sec == float("inf")]
        if unusable:
            costs = self._costs.costs
            reasons = "; ".join(dict.fromkeys(costs[c].reason for c in unusable))
            cost = Cost(CostStatus.UNKNOWN, reason=reasons)
        else:
            total = sum(seconds)
            cost = Cost(CostStatus.VALID, total, samples_sec=(total,), reason=REASON)
        return Standing(contender, module, self._keys.key(module), cost, None)

    def library(self, key: str, module: tvm.IRModule) -> CompiledLibrary:
        """The linked library of a partitioned module."""
        folder = self._context.work_dir / f"model-{key[:16]}"
        library = compile_module(
            module, self._targets, folder / LIBRARY, self._context, cuda_graph=True
        )
        stage_libraries(library, copy=False)
        return library
