"""The rules that a search uses unless told otherwise."""

from __future__ import annotations

from collage.backends.contract import BackendTarget, Granularity, TargetSet
from collage.search.dataflow import DataflowGraph
from collage.search.rules._base import Found, PartitionRule
from collage.search.rules.combine import CombineLimits, CombineRule, JoinByKind
from collage.search.rules.composite import CompositeRule
from collage.search.rules.dfpattern import DFPatternRule
from collage.search.rules.filters.accepted import AcceptedRule
from collage.search.rules.filters.only_valid import OnlyValidRule
from collage.search.rules.fuse_ops import FuseOpsRule
from collage.search.rules.host import HostRule
from collage.search.rules.op_kind import OpKindRule
from collage.search.rules.regions import RegionLimits, RegionsRule
from collage.search.rules.union import UnionRule
from collage.search.subgraph import SubGraphLimits

_FUSION_LIMITS = CombineLimits(max_parts=6, max_per_seed=24)


def default_rules(targets: TargetSet, region_limits: RegionLimits | None = None) -> PartitionRule:
    """Everything worth trying for these targets.

    For a native backend: single operators, the groups ``FuseOps`` would make, and smaller ones. For
    an external one: each pattern match, and regions of them if its granularity allows.

    Parameters
    ----------
    targets : TargetSet
        The native one also runs what stays in ``main``.
    region_limits : RegionLimits, optional
        How many regions to propose for backends that compile whole graphs.

    Returns
    -------
    PartitionRule
        Finds only valid candidates, which together cover every graph.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> from collage.testing import constant, graph
    >>> from tvm.relax import op
    >>> mod = graph([(4, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, constant(8, 8)))))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> found = default_rules(targets).find(dataflow)
    >>> sorted({(c.backend, c.nodes) for c in found.candidates if not c.inline})
    [('onednn', 1), ('onednn', 2), ('onednn', 3), ('tvm', 1), ('tvm', 2), ('tvm', 3)]
    """
    rules = [HostRule(targets.native), _native_rule(targets.native)]
    rules += [_external_rule(target, region_limits) for target in targets.external]
    # Whatever a rule of a backend does: nothing that is not convex gets through.
    return OnlyValidRule(UnionRule(rules), SubGraphLimits())


def _native_rule(target: BackendTarget) -> PartitionRule:
    """Candidates of a backend that compiles through TVM."""
    single = OpKindRule(target)
    fused = CombineRule(single, JoinByKind(), _FUSION_LIMITS, "fused_by_kind")
    return UnionRule([FuseOpsRule(target), single, fused])


def _external_rule(
    target: BackendTarget, region_limits: RegionLimits | None = None
) -> PartitionRule:
    """Candidates of a backend that brings a library."""
    matches = MatchRule(target)
    if target.implementation.granularity is Granularity.GRAPH:
        return AcceptedRule(RegionsRule(matches, region_limits))
    return AcceptedRule(matches)


class MatchRule(PartitionRule):
    """Each match of each of a backend's patterns, the highest priority first.

    Kept with the graph once found: greedy, single-backend and full searches all begin with them.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(emit(op.nn.relu(x))))
    >>> found = MatchRule(onednn).find(DataflowGraph.from_function(mod["main"]))
    >>> sorted((candidate.rule, candidate.nodes) for candidate in found.candidates)
    [('onednn.exp', 2), ('onednn.relu', 1)]
    """

    def __init__(self, target: BackendTarget) -> None:
        self.target = target

    def find(self, graph: DataflowGraph) -> Found:
        key = ("matches", self.target.key())
        found = graph.memo.get(key)
        if not isinstance(found, Found):
            with self.target.scope:
                triples = self.target.implementation.patterns(self.target)
            rules = [
                CompositeRule(DFPatternRule(triple, self.target), triple.name)
                for triple in reversed(list(triples))
            ]
            found = UnionRule(rules).find(graph)
            graph.memo[key] = found
        return found
