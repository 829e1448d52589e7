"""Bindings that stay in ``main`` and cost nothing."""

from __future__ import annotations

from collage.backends.contract import BackendTarget
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, OpKind
from collage.search.rules._base import Found, PartitionRule

RESHAPES = frozenset({"reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims"})
"""Only change a shape: Relax turns them into views of the same memory (``RewriteDataflowReshape``)
as long as they are not fused into a kernel."""


class HostRule(PartitionRule):
    """Tuples, tuple items, shapes, compiled functions' calls and reshapes, inline in ``main``.

    Parameters
    ----------
    target : BackendTarget
        Whose device runs ``main``.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(emit(op.reshape(x, (32,)))))
    >>> found = HostRule(tvm).find(DataflowGraph.from_function(mod["main"]))
    >>> [(candidate.nodes, candidate.inline) for candidate in found.candidates]
    [(1, True)]
    """

    def __init__(self, target: BackendTarget) -> None:
        self.target = target

    def find(self, graph: DataflowGraph) -> Found:
        return Found(
            tuple(
                Candidate(1 << index, self.target, rule="host", inline=True)
                for index in range(len(graph))
                if is_host(graph, index) or graph.op_name(index) in RESHAPES
            )
        )


def is_host(graph: DataflowGraph, index: int) -> bool:
    """Whether a binding computes no tensor and so can only be inline.

    Parameters
    ----------
    graph : DataflowGraph
        Where the binding stands.
    index : int
        The binding's number.

    Returns
    -------
    bool
        True of tuples and of what runs on the host, such as shapes.
    """
    return graph.op_kind(index) in (OpKind.HOST, OpKind.TUPLE)
