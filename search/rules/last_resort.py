"""What remains for operators that no other candidate computes."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract import BackendTarget, NativeBackend
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule
from collage.search.rules.filters.only_valid import OnlyValidRule
from collage.search.rules.host import is_host
from collage.search.rules.op_kind import OpKindRule
from collage.search.subgraph import SubGraphLimits

LAST_RESORT = "last_resort"
"""Name of the rule in its candidates."""


class LastResortRule(PartitionRule):
    """Each operator by itself, in the simplest way that a native backend has.

    Parameters
    ----------
    target : BackendTarget
        What :meth:`NativeBackend.last_resort` gave.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> plain = tvm.implementation.last_resort(tvm)
    >>> found = LastResortRule(plain).find(DataflowGraph.from_uses([[], [0]]))
    >>> [(c.nodes, c.rule, c.target.options.schedule) for c in found.candidates]
    [(1, 'last_resort', 'plain'), (2, 'last_resort', 'plain')]
    """

    def __init__(self, target: BackendTarget) -> None:
        self.target = target

    def find(self, graph: DataflowGraph) -> Found:
        return Found(
            tuple(
                Candidate(1 << index, self.target, rule=LAST_RESORT)
                for index in range(len(graph))
                if not is_host(graph, index)
            )
        )


def last_resorts(native: BackendTarget) -> Sequence[PartitionRule]:
    """Rules to ask where nothing covers an operator, the faster kernels first.

    Single operators that were left out because a larger candidate holds them; then the simplest
    kernels there are.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> len(last_resorts(tvm)), len(last_resorts(tvm.implementation.last_resort(tvm)))
    (2, 1)
    """
    backend = native.implementation
    assert isinstance(backend, NativeBackend)
    rules: list[PartitionRule] = [OpKindRule(native)]
    simplest = backend.last_resort(native)
    if simplest is not None:
        rules.append(LastResortRule(simplest))
    return [OnlyValidRule(rule, SubGraphLimits()) for rule in rules]
