"""Only those candidates that their backend accepts as a partition."""

from __future__ import annotations

from collage.backends.contract import JudgesRegions, Verdict
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.rules._base import Found, PartitionRule, Rejection


class AcceptedRule(PartitionRule):
    """A rule's candidates that their backends accept whole; the others become rejections.

    Patterns judge operators one by one; this is for what only a whole region shows, for example
    that it holds no work worth an engine.

    Examples
    --------
    TVM takes every region, and so do backends that do not judge them:

    >>> from collage.search.rules import OpKindRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> rule = AcceptedRule(OpKindRule(tvm))
    >>> [candidate.nodes for candidate in rule.find(DataflowGraph.from_uses([[], [0]])).candidates]
    [1, 2]
    """

    def __init__(self, rule: PartitionRule) -> None:
        self.rule = rule

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        kept: list[Candidate] = []
        rejections: dict[tuple[int, str], Rejection] = {}
        for candidate in found.candidates:
            graph.step()
            verdict = region_verdict(graph, candidate)
            if verdict:
                kept.append(candidate)
                continue
            root = candidate.nodes.bit_length() - 1
            # The first one stands for all of a root's regions that are refused for one reason.
            rejections.setdefault(
                (root, verdict.reason),
                Rejection(root, candidate.backend, candidate.rule, verdict.reason),
            )
        return Found(tuple(kept), (*found.rejections, *rejections.values()))


def region_verdict(graph: DataflowGraph, candidate: Candidate) -> Verdict:
    """What a candidate's backend says to its operators as one partition.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings it holds.
    candidate : Candidate
        Native ones are always accepted.

    Returns
    -------
    Verdict
        Yes, or no with the reason.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> from tvm.relax import op
    >>> _, onednn = resolve_targets(["llvm", {"kind": "onednn", "precision": "bfloat16"}])
    >>> dataflow = DataflowGraph.from_function(graph([(8,)], lambda _, x: op.exp(x))["main"])
    >>> bool(region_verdict(dataflow, Candidate(0b1, onednn)))
    False
    """
    backend = candidate.target.implementation
    if not isinstance(backend, JudgesRegions):
        return Verdict.yes()
    operators = [graph.bindings[index].value for index in bits(candidate.nodes)]
    with candidate.target.scope:
        return backend.accepts_region(operators, candidate.target)
