"""Leave out candidates that another one contains for nothing."""

from __future__ import annotations

from collage.backends.contract import BackendTarget
from collage.search.dataflow import DataflowGraph, OpKind
from collage.search.rules._base import Found, PartitionRule
from collage.search.rules.fuse_ops import FUSE_OPS
from collage.search.subgraph import SubGraph

_ABSORBED = (OpKind.ELEMWISE, OpKind.BROADCAST)


class UndominatedRule(PartitionRule):
    """A rule's candidates without those whose only user their target could take along.

    A convolution whose only user is its bias, and the bias's only user a relu, need not be measured
    by itself and with its bias where the same target offers all three as one: fused, an elementwise
    operator reads what is in a register, apart it reads memory. That is a judgement, not a proof,
    but it spares a search most of its measurements. Where the operator reads a second value (a
    residual sum), nothing is left out, nor are the groups that TVM's own fusion makes: with those,
    what is kept always covers the graph.

    Examples
    --------
    >>> from collage.search.rules import CombineLimits, CombineRule, JoinByKind
    >>> from collage.search.rules import OpKindRule, UnionRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> singles = OpKindRule(tvm)
    >>> pairs = CombineRule(singles, JoinByKind(), CombineLimits(2, 8), "pairs")
    >>> both = UndominatedRule(UnionRule([singles, pairs]))
    >>> [candidate.nodes for candidate in both.find(DataflowGraph.from_uses([[], [0]])).candidates]
    [2, 3]
    """

    def __init__(self, rule: PartitionRule) -> None:
        self.rule = rule

    def find(self, graph: DataflowGraph) -> Found:
        """Time and memory are linear in the candidates."""
        found = self.rule.find(graph)
        offered: dict[BackendTarget, set[int]] = {}
        for candidate in found.candidates:
            if not candidate.inline:
                offered.setdefault(candidate.target, set()).add(candidate.nodes)
        kept = [
            candidate
            for candidate in found.candidates
            if candidate.inline
            or candidate.rule == FUSE_OPS
            or not _grows_into(offered[candidate.target], graph, candidate.nodes)
        ]
        return Found(tuple(kept), found.rejections)


def _grows_into(offered: set[int], graph: DataflowGraph, nodes: int) -> bool:
    """Whether a node set with what it could take along is offered, too."""
    graph.step()
    grown = nodes | _absorbable(graph, nodes)
    return grown != nodes and grown in offered


def _absorbable(graph: DataflowGraph, nodes: int) -> int:
    """The one elementwise operator that is the only user of a node set and reads nothing else."""
    sub_graph = SubGraph(graph, nodes)
    user = sub_graph.output
    if sub_graph.exit.bit_count() != 1 or user.bit_count() != 1 or sub_graph.exit & graph.outputs:
        return 0
    index = user.bit_length() - 1
    reads_only_these = graph.preds(index) & ~nodes == 0
    return user if reads_only_these and graph.op_kind(index) in _ABSORBED else 0
