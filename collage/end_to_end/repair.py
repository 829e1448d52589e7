"""Repairs partitionings of which parts cannot be had: their operators go back to TVM.

A part may be known to fail, or to be computed wrongly. And a pattern's yes is a hint; some
libraries, TensorRT above all, only say while compiling that they do not take a region. What a
search chose was measured and so compiles, but greedy partitionings are made without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext, RefusesPartitions, is_native
from collage.backends.contract.errors import ReplayMissError
from collage.backends.contract.relax_codegen import prepared
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostStatus
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end.evaluation import Contender, Refusal
from collage.passes import lower, partition_names
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning, make_partitioning
from collage.search.rules import Rejection
from collage.search.strategies.without_costs import cover_rest

_FAILED = {
    CostStatus.BUILD_FAILED,
    CostStatus.RUN_FAILED,
    CostStatus.CRASHED,
    CostStatus.WRONG_RESULT,
}
"""What happens again: too little time or memory may have been another program's doing."""


class PartitionRepair:
    """Replaces what libraries refuse in the partitionings of one model.

    Parameters
    ----------
    mod, graph : tvm.IRModule, DataflowGraph
        The normalized module, and its ``main``.
    native : BackendTarget
        Runs the operators of undone partitions.
    context : BuildContext
        Where libraries keep what they made while they were asked. In its replay nothing is
        compiled: what the log does not call refused is not.
    costs : WorkloadCosts
        Informed of every refusal; in a replay it alone is asked.
    progress : callable
        Informed of each refusal.

    Attributes
    ----------
    refusals : list of Refusal
        Of all partitionings so far, each once.

    Examples
    --------
    oneDNN takes what its patterns match, so there is nothing to repair:

    >>> from pathlib import Path
    >>> from collage.cost import TableCostModel
    >>> from collage.search import greedy
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> mod = graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> costs = WorkloadCosts(mod, dataflow, TableCostModel({("exp 8", "tvm"): 1e-6}))
    >>> context = BuildContext(Path("cache"), Path("work"))
    >>> repair = PartitionRepair(mod, dataflow, targets.native, context, costs)
    >>> contender = Contender("greedy", greedy(dataflow, targets))
    >>> repair.repair(contender) is contender, repair.refusals
    (True, [])
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        native: BackendTarget,
        context: BuildContext,
        costs: WorkloadCosts,
        progress: ProgressCallback = ignore,
    ) -> None:
        self.refusals: list[Refusal] = []
        self._mod = mod
        self._graph = graph
        self._native = native
        self._context = context
        self._costs = costs
        self._progress = progress

    def repair(self, contender: Contender) -> Contender:
        """The contender without what is refused; itself when nothing is."""
        partitioning = contender.partitioning
        ask = self._from_log if self._context.replay else self._from_libraries
        refused = self._failed(partitioning)
        wrong = {refusal.candidate for refusal in refused}
        refused += [refusal for refusal in ask(partitioning) if refusal.candidate not in wrong]
        if not refused:
            return contender
        for refusal in refused:
            self._note(refusal)
        gone = {refusal.candidate for refusal in refused}
        return replace(
            contender, partitioning=without(self._graph, partitioning, gone, self._native)
        )

    def rejections(self) -> list[Rejection]:
        """For the report: of every operator of a refused partition, why its backend has it not."""
        return [
            Rejection(index, refusal.candidate.backend, refusal.candidate.rule, refusal.reason)
            for refusal in self.refusals
            for index in bits(refusal.candidate.nodes)
        ]

    def _note(self, refusal: Refusal) -> None:
        candidate = refusal.candidate
        same = (known.candidate for known in self.refusals)
        if any((c.nodes, c.target) == (candidate.nodes, candidate.target) for c in same):
            return
        self.refusals.append(refusal)
        count = candidate.nodes.bit_count()
        message = f"TVM gets {count} operators of {candidate.backend}: {refusal.reason}"
        self._progress(ProgressEvent("repair", len(self.refusals), 0, message))

    def _failed(self, partitioning: Partitioning) -> list[Refusal]:
        """What is recorded to fail or to be computed wrongly, by itself or in a whole model."""
        found = []
        for candidate in partitioning.candidates:
            if candidate.inline or is_native(candidate.target):
                continue
            cost = self._costs.recorded(candidate)
            if cost is not None and cost.status in _FAILED:
                found.append(Refusal(candidate, cost.reason))
        return found

    def _from_libraries(self, partitioning: Partitioning) -> list[Refusal]:
        names = partition_names(partitioning)
        by_target: dict[BackendTarget, list[str]] = {}
        for name, candidate in names.items():
            if _may_refuse(candidate):
                by_target.setdefault(candidate.target, []).append(name)
        if not by_target:
            return []
        module = lower(self._mod, self._graph, partitioning)
        refused = []
        for target, asked in by_target.items():
            backend = target.implementation
            assert isinstance(backend, RefusesPartitions)
            functions = _functions(module, asked)
            with target.scope:
                ready = prepared(functions, target)
                refusals = backend.refusals(ready, target, self._context)
            for name, reason in refusals.items():
                self._costs.refuse(names[name], reason)
                refused.append(Refusal(names[name], reason))
        return refused

    def _from_log(self, partitioning: Partitioning) -> list[Refusal]:
        refused = []
        for candidate in partitioning.candidates:
            if not _may_refuse(candidate):
                continue
            try:
                self._costs.seconds([candidate])
            except ReplayMissError:
                continue
            cost = self._costs.costs[candidate]
            if cost.status is CostStatus.BUILD_FAILED:
                refused.append(Refusal(candidate, cost.reason))
        return refused


def without(
    graph: DataflowGraph, partitioning: Partitioning, gone: set[Candidate], native: BackendTarget
) -> Partitioning:
    """A partitioning whose refused candidates are undone: TVM's own fusion gets their operators.

    Parameters
    ----------
    graph : DataflowGraph
        What is partitioned.
    partitioning : Partitioning
        A cover of it.
    gone : set of Candidate
        Members of the partitioning.
    native : BackendTarget
        Runs what they held.

    Returns
    -------
    Partitioning
        Of the same origin; its cost is not known.
    """
    kept = [candidate for candidate in partitioning.candidates if candidate not in gone]
    rest = cover_rest(graph, kept, native)
    return make_partitioning(graph, [*kept, *rest], None, partitioning.origin)


def _may_refuse(candidate: Candidate) -> bool:
    """Whether the candidate's backend has a say of its own."""
    backend = candidate.target.implementation
    return not candidate.inline and isinstance(backend, RefusesPartitions)


def _functions(module: tvm.IRModule, names: Sequence[str]) -> list[relax.Function]:
    return [module[name] for name in names]
