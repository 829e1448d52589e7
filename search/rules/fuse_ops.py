"""The groups TVM's own fusion would make."""

from __future__ import annotations

from collage.backends.contract import BackendTarget
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.fusion import fuse_ops_groups
from collage.search.growth import apart_where_growing
from collage.search.rules._base import Found, PartitionRule
from collage.search.rules.host import is_host

FUSE_OPS = "fuse_ops"
"""Name of the rule in its candidates."""


class FuseOpsRule(PartitionRule):
    """Each group that ``FuseOps`` would make of the whole graph, for a native backend; and the two
    of each that :func:`~collage.search.growth.apart_where_growing` would rather have.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> [candidate.nodes for candidate in FuseOpsRule(tvm).find(chain).candidates]
    [7]
    """

    def __init__(self, target: BackendTarget) -> None:
        self.target = target

    def find(self, graph: DataflowGraph) -> Found:
        fused = fuse_ops_groups(graph)
        groups = dict.fromkeys([*fused, *apart_where_growing(graph, fused)])
        return Found(
            tuple(
                Candidate(group, self.target, rule=FUSE_OPS)
                for group in groups
                if not all(is_host(graph, index) for index in bits(group))
            )
        )
