"""Only those candidates that keep within limits."""

from __future__ import annotations

from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule
from collage.search.subgraph import SubGraph, SubGraphLimits


class OnlyValidRule(PartitionRule):
    """A rule's candidates that are convex and within limits."""

    def __init__(self, rule: PartitionRule, limits: SubGraphLimits) -> None:
        self.rule = rule
        self.limits = limits

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        valid = (c for c in found.candidates if SubGraph(graph, c.nodes).is_valid(self.limits))
        return Found(tuple(valid), found.rejections)
