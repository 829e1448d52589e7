"""The union of rules."""

from __future__ import annotations

from collections.abc import Sequence

from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule, distinct


class UnionRule(PartitionRule):
    """Everything that several rules find; of equal candidates the first rule's is kept.

    Examples
    --------
    >>> from collage.search.rules import FuseOpsRule, OpKindRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> rule = UnionRule([FuseOpsRule(tvm), OpKindRule(tvm)])
    >>> found = rule.find(DataflowGraph.from_uses([[], [0]]))
    >>> [(candidate.nodes, candidate.rule) for candidate in found.candidates]
    [(3, 'fuse_ops'), (1, 'kind.elemwise'), (2, 'kind.elemwise')]
    """

    def __init__(self, rules: Sequence[PartitionRule]) -> None:
        self.rules = tuple(rules)

    def find(self, graph: DataflowGraph) -> Found:
        found = [rule.find(graph) for rule in self.rules]
        return Found(
            distinct(candidate for part in found for candidate in part.candidates),
            tuple(rejection for part in found for rejection in part.rejections),
        )
