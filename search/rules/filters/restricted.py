"""Leave out candidates that a user does not want."""

from __future__ import annotations

from collage.search.dataflow import DataflowGraph
from collage.search.restrictions import Restrictions
from collage.search.rules._base import Found, PartitionRule, Rejection


class RestrictedRule(PartitionRule):
    """A rule's candidates that are allowed; the others become rejections, so that a report tells.

    Parameters
    ----------
    rule : PartitionRule
        Finds the candidates.
    restrictions : Restrictions
        What may not run where; its reason becomes the rejection's.

    Examples
    --------
    >>> from collage.search.rules import OpKindRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> banned = Restrictions({"tvm": {0: "ban exp=tvm"}})
    >>> found = RestrictedRule(OpKindRule(tvm), banned).find(DataflowGraph.from_uses([[], [0]]))
    >>> [candidate.nodes for candidate in found.candidates], found.rejections[0].reason
    ([2], 'ban exp=tvm')
    """

    def __init__(self, rule: PartitionRule, restrictions: Restrictions) -> None:
        self.rule = rule
        self.restrictions = restrictions

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        if not self.restrictions:
            return found
        kept = tuple(c for c in found.candidates if self.restrictions.allow(c))
        # One a binding: it is the same wish that refuses all of its candidates.
        refused = (
            Rejection(index, backend, "restricted", reason)
            for backend, nodes in self.restrictions.closed.items()
            for index, reason in nodes.items()
        )
        return Found(kept, (*found.rejections, *refused))
