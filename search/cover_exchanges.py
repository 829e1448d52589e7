"""Where two covers of a graph differ, in the smallest parts that can be exchanged for each other.

A search with a price for something besides time finds the covers on the lower convex hull of both;
of ten equal layers it changes all or none. What lies between is had by taking some parts of one
cover and the rest of another (the gap of a Lagrangian relaxation: Everett, "Generalized Lagrange
Multiplier Method", Operations Research 11(3), 1963, calls them the inaccessible regions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning, make_partitioning, quotient


@dataclass(frozen=True)
class CoverExchange:
    """Candidates of one cover, and those of another over the same bindings.

    Attributes
    ----------
    old : tuple of Candidate
        Of the cover that is changed.
    new : tuple of Candidate
        Of the other.
    """

    old: tuple[Candidate, ...]
    new: tuple[Candidate, ...]


def exchanges(old: Partitioning, new: Partitioning) -> list[CoverExchange]:
    """The smallest parts in which two covers of the same graph differ, by their first bindings.

    Parameters
    ----------
    old, new : Partitioning
        Covers of one graph.

    Returns
    -------
    list of CoverExchange
        No two of them touch the same binding; all of them together turn one cover into the other.

    Notes
    -----
    The connected components of the bipartite graph of the covers' candidates, with an edge where
    two hold the same binding: linear in the number of bindings.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> plain = Partitioning(tuple(Candidate(1 << index, tvm) for index in range(3)))
    >>> other = Partitioning((Candidate(0b011, onednn), Candidate(0b100, tvm)))
    >>> [(len(one.old), len(one.new)) for one in exchanges(plain, other)]
    [(2, 1)]
    """
    holder = {index: one for one in new.candidates for index in bits(one.nodes)}
    shared: nx.Graph[tuple[int, Candidate]] = nx.Graph()
    for one in old.candidates:
        shared.add_edges_from(((0, one), (1, holder[index])) for index in bits(one.nodes))
    found = []
    for part in nx.connected_components(shared):
        sides = [
            tuple(sorted((c for side, c in part if side == wanted), key=_first))
            for wanted in (0, 1)
        ]
        if sides[0] != sides[1]:
            found.append(CoverExchange(sides[0], sides[1]))
    return sorted(found, key=lambda one: _first(one.old[0]))


def exchanged(
    graph: DataflowGraph, old: Partitioning, chosen: Sequence[CoverExchange], origin: str = ""
) -> Partitioning | None:
    """A cover with some of its parts exchanged.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    old : Partitioning
        The cover.
    chosen : sequence of CoverExchange
        Of :func:`exchanges` between it and another.
    origin : str
        Who made it, see :class:`~collage.search.Partitioning`.

    Returns
    -------
    Partitioning or None
        Without seconds; None where parts of the two would wait for each other in a cycle.
    """
    gone = {one for part in chosen for one in part.old}
    kept = [one for one in old.candidates if one not in gone]
    mixed = [*kept, *(one for part in chosen for one in part.new)]
    # Each cover has an order of its own, and the two need not agree.
    if not nx.is_directed_acyclic_graph(quotient(graph, [one.nodes for one in mixed])):
        return None
    return make_partitioning(graph, mixed, origin=origin)


def _first(candidate: Candidate) -> int:
    """The lowest binding it holds, as a mask."""
    return candidate.nodes & -candidate.nodes
