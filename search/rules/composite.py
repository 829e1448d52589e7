"""Matches as composites of an external backend."""

from __future__ import annotations

from dataclasses import replace

from collage.search.candidates import Composite
from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule


class CompositeRule(PartitionRule):
    """Each of a rule's candidates as one composite function of the given name.

    Parameters
    ----------
    rule : PartitionRule
        Finds the candidates.
    name : str
        Of each composite, such as ``mine.exp``.

    Examples
    --------
    >>> from collage.search.rules import OpKindRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> rule = CompositeRule(OpKindRule(tvm), "mine.exp")
    >>> rule.find(DataflowGraph.from_uses([[]])).candidates[0].composites
    (Composite(name='mine.exp', nodes=1),)
    """

    def __init__(self, rule: PartitionRule, name: str) -> None:
        self.rule = rule
        self.name = name

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        return Found(
            tuple(
                replace(c, composites=(Composite(self.name, c.nodes),), rule=self.name)
                for c in found.candidates
            ),
            found.rejections,
        )
