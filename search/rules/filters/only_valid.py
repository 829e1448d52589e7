"""Only those candidates that keep within limits."""

from __future__ import annotations

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule
from collage.search.subgraph import SubGraph, SubGraphLimits


class OnlyValidRule(PartitionRule):
    """A rule's candidates that are convex, within limits, and take tensors only.

    Parameters
    ----------
    rule : PartitionRule
        Finds the candidates.
    limits : SubGraphLimits
        How large they may be.

    Examples
    --------
    >>> from collage.search.rules import FuseOpsRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> rule = OnlyValidRule(FuseOpsRule(tvm), SubGraphLimits(max_nodes=2))
    >>> len(rule.find(DataflowGraph.from_uses([[], [0]])).candidates)
    1
    >>> len(rule.find(DataflowGraph.from_uses([[], [0], [1]])).candidates)
    0
    """

    def __init__(self, rule: PartitionRule, limits: SubGraphLimits) -> None:
        self.rule = rule
        self.limits = limits

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        valid = tuple(c for c in found.candidates if self._is_valid(graph, c))
        return Found(valid, found.rejections)

    def _is_valid(self, graph: DataflowGraph, candidate: Candidate) -> bool:
        graph.step()
        part = SubGraph(graph, candidate.nodes)
        return part.is_valid(self.limits) and (candidate.inline or not part.takes_tuples)
