"""Single operators, by their kind."""

from __future__ import annotations

from collections.abc import Collection

from collage.backends.contract import BackendTarget
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, OpKind
from collage.search.rules._base import Found, PartitionRule

COMPUTING_KINDS = frozenset(OpKind) - {OpKind.HOST, OpKind.TUPLE}


class OpKindRule(PartitionRule):
    """Each operator of certain kinds as a candidate of its own, for a native backend.

    Parameters
    ----------
    target : BackendTarget
        A native backend's.
    kinds : collection of OpKind
        By default those that compute something.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> found = OpKindRule(tvm).find(DataflowGraph.from_uses([[], [0]]))
    >>> [(candidate.nodes, candidate.rule) for candidate in found.candidates]
    [(1, 'kind.elemwise'), (2, 'kind.elemwise')]
    """

    def __init__(self, target: BackendTarget, kinds: Collection[OpKind] = COMPUTING_KINDS) -> None:
        self.target = target
        self.kinds = frozenset(kinds)

    def find(self, graph: DataflowGraph) -> Found:
        return Found(
            tuple(
                Candidate(1 << index, self.target, rule=f"kind.{graph.op_kind(index).name.lower()}")
                for index in range(len(graph))
                if graph.op_kind(index) in self.kinds
            )
        )
