"""Every cover of a small graph, tried one by one: the oracle for testing the real search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import networkx as nx

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, checked_seconds
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, make_partitioning, quotient

MAX_NODES = 16


def exhaustive_search(
    graph: DataflowGraph, candidates: Sequence[Candidate], costs: CandidateCosts
) -> Partitioning:
    """The cheapest partitioning, found by trying all of them; evaluates every candidate.

    Parameters
    ----------
    graph : DataflowGraph
        Of at most ``MAX_NODES`` bindings: time is exponential in their number.
    candidates : sequence of Candidate
        Earlier ones win ties.
    costs : CandidateCosts
        Asked once, for all candidates that are not inline.

    Returns
    -------
    Partitioning
        Its origin is ``exhaustive``.

    Raises
    ------
    SearchError
        When the graph is too large, or nothing covers it.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> from collage.search import TableCosts
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> table = {Candidate(0b01, tvm): 2.0, Candidate(0b10, tvm): 2.0, Candidate(0b11, onednn): 3.0}
    >>> exhaustive_search(graph, list(table), TableCosts(table)).seconds
    3.0
    """
    if len(graph) > MAX_NODES:
        raise SearchError(f"{len(graph)} bindings are too many to try all covers", value=len(graph))
    seconds = [0.0] * len(candidates)
    asked = [i for i, candidate in enumerate(candidates) if not candidate.inline]
    found = checked_seconds(costs, [candidates[i] for i in asked])
    for i, value in zip(asked, found, strict=True):
        seconds[i] = math.inf if value is None else value
    best, best_seconds = None, math.inf
    for cover in _exact_covers(graph, candidates):
        total = math.fsum(seconds[i] for i in cover)
        if total < best_seconds:
            blocks = [candidates[i].nodes for i in cover]
            if nx.is_directed_acyclic_graph(quotient(graph, blocks)):
                best, best_seconds = cover, total
    if best is None:
        raise SearchError("no set of usable candidates covers the graph", value=None)
    chosen = [candidates[i] for i in best]
    return make_partitioning(graph, chosen, best_seconds, "exhaustive")


def _exact_covers(
    graph: DataflowGraph, candidates: Sequence[Candidate]
) -> Iterator[tuple[int, ...]]:
    """All sets of disjoint candidates that cover the graph, as positions, cycles and all."""

    def extend(covered: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if covered == graph.all_nodes:
            yield chosen
            return
        wanted = next(i for i in range(len(graph)) if not covered >> i & 1)
        for position, candidate in enumerate(candidates):
            if candidate.nodes >> wanted & 1 and not candidate.nodes & covered:
                yield from extend(covered | candidate.nodes, (*chosen, position))

    return extend(0, ())
