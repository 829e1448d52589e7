"""Partitionings made without any cost: greedy BYOC, one backend alone, TVM alone.

They are what users get today, what the end-to-end comparison sets against the search's, and good
seeds for a search.
"""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract import BackendTarget, Granularity, TargetSet
from collage.backends.contract.errors import RestrictionError, SearchError
from collage.search.byoc import choose_matches, merge_composites
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.fusion import fuse_ops_groups
from collage.search.growth import apart_where_growing
from collage.search.partitioning import Partitioning, describe, make_partitioning
from collage.search.restrictions import UNRESTRICTED, Restrictions
from collage.search.rules.combine import join
from collage.search.rules.default import MatchRule
from collage.search.rules.filters.accepted import region_verdict
from collage.search.rules.filters.restricted import RestrictedRule
from collage.search.rules.host import is_host


def greedy(
    graph: DataflowGraph,
    targets: TargetSet,
    priority: Sequence[str] | None = None,
    origin: str = "greedy",
    *,
    restrictions: Restrictions = UNRESTRICTED,
    lenders: Sequence[BackendTarget] = (),
) -> Partitioning:
    """What ``FuseOpsByPattern`` and ``MergeCompositeFunctions`` give; TVM's fusion gets the rest.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    targets : TargetSet
        Exactly those to use.
    priority : sequence of str, optional
        Names of external targets, the first to choose first; in the order of ``targets`` if left
        out. Backends that are not named get nothing.
    origin : str
        Of the partitioning that is made.
    restrictions : Restrictions, optional
        What may not be used. Where a binding is closed to the native backend, a match that is
        allowed is chosen before all others.
    lenders : sequence of BackendTarget, optional
        External targets that take what is closed to all of ``targets``, and nothing else.

    Returns
    -------
    Partitioning
        Of unknown cost.

    Raises
    ------
    SearchError
        When a name in ``priority`` is no external target's.
    RestrictionError
        When the greedy choice leaves a binding to TVM that is closed to it.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> from collage.testing import constant, graph
    >>> from tvm.relax import op
    >>> mod = graph([(4, 8)], lambda emit, x: op.nn.relu(emit(op.matmul(x, constant(8, 8)))))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> [(c.backend, c.nodes) for c in greedy(dataflow, targets).candidates]
    [('onednn', 3)]
    """
    external = {target.name: target for target in targets.external}
    order = list(external) if priority is None else list(priority)
    for name in order:
        if name not in external:
            raise SearchError(f"'{name}' is none of the external targets", value=name)
    chosen: list[Candidate] = []
    taken = 0

    def choose(target: BackendTarget, among: int) -> None:
        """Those of a target's matches that touch some bindings."""
        nonlocal taken
        matches = RestrictedRule(MatchRule(target), restrictions).find(graph).candidates
        fresh = choose_matches(graph, [m for m in matches if m.nodes & among], taken)
        taken |= sum(match.nodes for match in fresh)
        chosen.extend(fresh)

    forced = restrictions.closed_to(targets.native.name)
    for target in (*(external[name] for name in order), *lenders) if forced else ():
        choose(target, forced)
    for name in order:
        choose(external[name], graph.all_nodes)
    merged = _merge(graph, chosen)
    regions = [region for region in merged if region_verdict(graph, region)]
    rest = cover_rest(graph, regions, targets.native)
    made = make_partitioning(graph, [*regions, *rest], None, origin)
    for candidate in made.candidates:
        if reason := restrictions.reason(candidate):
            raise RestrictionError(
                f"{origin} leaves {describe(graph, candidate)} to {candidate.backend}, against "
                f"{reason}",
                value=candidate,
            )
    return made


def single_backend(
    graph: DataflowGraph,
    target: BackendTarget,
    native: BackendTarget,
    *,
    restrictions: Restrictions = UNRESTRICTED,
    lenders: Sequence[BackendTarget] = (),
) -> Partitioning:
    """All that one backend can take, greedily; TVM's fusion gets the rest.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    target : BackendTarget
        External, or the native one itself.
    native : BackendTarget
        Runs the rest.
    restrictions, lenders
        As :func:`greedy` takes them.

    Raises
    ------
    RestrictionError
        When a binding is left to TVM that is closed to it.

    Returns
    -------
    Partitioning
        Its origin is ``single:`` and the target's name.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> [(c.backend, c.nodes) for c in single_backend(graph, tvm, tvm).candidates]
    [('tvm', 3)]
    """
    targets = TargetSet(native, () if target == native else (target,))
    return greedy(
        graph,
        targets,
        origin=f"single:{target.name}",
        restrictions=restrictions,
        lenders=[lender for lender in lenders if lender not in (target, native)],
    )


def _merge(graph: DataflowGraph, chosen: Sequence[Candidate]) -> list[Candidate]:
    """Join the composites of graph backends; those of operator backends stay single."""
    by_nodes = {match.nodes: match for match in chosen}
    joinable = {}
    for number, match in enumerate(chosen):
        graph_wide = match.target.implementation.granularity is Granularity.GRAPH
        joinable[match.nodes] = match.backend if graph_wide else f"{match.backend}:{number}"
    regions = []
    for group in merge_composites(graph, joinable):
        parts = [by_nodes[nodes] for nodes in group]
        regions.append(join(parts, graph, "greedy") if len(parts) > 1 else parts[0])
    return regions


def cover_rest(
    graph: DataflowGraph, regions: Sequence[Candidate], native: BackendTarget
) -> list[Candidate]:
    """What no candidate took, as ``FuseOps`` groups, cut where tensors grow; tuples and the like
    inline.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    regions : sequence of Candidate
        Disjoint, and none waits for itself through others.
    native : BackendTarget
        Runs the rest.

    Returns
    -------
    list of Candidate
        Disjoint from ``regions``; together they cover the graph.
    """
    rest = []
    fused = fuse_ops_groups(graph, [region.nodes for region in regions])
    for group in apart_where_growing(graph, fused):
        if all(is_host(graph, index) for index in bits(group)):
            rest += [
                Candidate(1 << index, native, rule="host", inline=True) for index in bits(group)
            ]
        else:
            rest.append(Candidate(group, native, rule="fuse_ops"))
    return rest
