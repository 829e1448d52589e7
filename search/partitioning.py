"""Partitionings: disjoint candidates that cover a graph, and the check that they really do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.subgraph import SubGraph


@dataclass(frozen=True)
class Partitioning:
    """A cover of a graph.

    Attributes
    ----------
    candidates : tuple of Candidate
        In an order in which they can run.
    seconds : float or None
        What they cost together per call: a sum or an end-to-end time, as ``origin`` tells; None
        when nobody has asked.
    origin : str
        Who made it: ``optimal``, ``greedy``, ``single:onednn``, ``refined`` …

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> one = Partitioning((Candidate(0b01, tvm), Candidate(0b10, onednn)), seconds=3e-3)
    >>> other = Partitioning((Candidate(0b10, onednn), Candidate(0b01, tvm)), origin="greedy")
    >>> one.key() == other.key()
    True
    """

    candidates: tuple[Candidate, ...]
    seconds: float | None = None
    origin: str = ""

    def key(self) -> tuple[tuple[int, str], ...]:
        """What tells two partitionings apart, whatever their order."""
        return tuple(sorted((c.nodes, "" if c.inline else c.target.key()) for c in self.candidates))


def quotient(graph: DataflowGraph, blocks: Sequence[int]) -> nx.DiGraph:
    """The graph of blocks: an edge where one uses another's value; nodes are positions.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the blocks hold.
    blocks : sequence of int
        Disjoint bit masks.

    Returns
    -------
    networkx.DiGraph
        Over the positions of ``blocks``.
    """
    owner = {index: number for number, block in enumerate(blocks) for index in bits(block)}
    result = nx.DiGraph()
    result.add_nodes_from(range(len(blocks)))
    for number, block in enumerate(blocks):
        for index in bits(block):
            for used in bits(graph.preds(index) & ~block):
                if used in owner:
                    result.add_edge(owner[used], number)
    return result


def quotient_order(graph: DataflowGraph, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Disjoint candidates in an order in which they can run: earliest binding first where free.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the candidates hold.
    candidates : sequence of Candidate
        In any order.

    Returns
    -------
    list of Candidate
        The same candidates.

    Raises
    ------
    SearchError
        When two or more candidates wait for each other.
    """
    blocks = [candidate.nodes for candidate in candidates]
    between = quotient(graph, blocks)
    try:
        order = list(
            nx.lexicographical_topological_sort(between, key=lambda n: blocks[n] & -blocks[n])
        )
    except nx.NetworkXUnfeasible:
        cycle = [edge[0] for edge in nx.find_cycle(between)]
        names = " -> ".join(describe(graph, candidates[n]) for n in cycle)
        raise SearchError(
            f"partitions wait for each other in a cycle: {names}",
            value=[candidates[n] for n in cycle],
        ) from None
    return [candidates[number] for number in order]


def make_partitioning(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    seconds: float | None = None,
    origin: str = "",
) -> Partitioning:
    """A partitioning of the given candidates, ordered and checked.

    Parameters
    ----------
    graph : DataflowGraph
        What they cover.
    candidates : sequence of Candidate
        In any order.
    seconds : float, optional
        What they cost together per call.
    origin : str
        Who made it, see :class:`Partitioning`.

    Returns
    -------
    Partitioning
        That :func:`validate` accepts.

    Raises
    ------
    SearchError
        When they are no partitioning of the graph.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> made = make_partitioning(graph, [Candidate(0b10, tvm), Candidate(0b01, onednn)])
    >>> [candidate.nodes for candidate in made.candidates]
    [1, 2]
    """
    made = Partitioning(tuple(quotient_order(graph, candidates)), seconds, origin)
    validate(graph, made)
    return made


def validate(graph: DataflowGraph, partitioning: Partitioning) -> None:
    """Check the certificate: disjoint, covering, convex, free of cycles, in an order that runs.

    Parameters
    ----------
    graph : DataflowGraph
        What should be covered.
    partitioning : Partitioning
        What claims to cover it.

    Raises
    ------
    SearchError
        Names what is wrong and where.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> validate(graph, Partitioning((Candidate(0b01, tvm),)))
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.SearchError: binding 1 (op1) is not covered
    """
    covered = 0
    for candidate in partitioning.candidates:
        name = describe(graph, candidate)
        if not candidate.nodes or candidate.nodes & ~graph.all_nodes:
            raise SearchError(f"{name} is empty or reaches outside the graph", value=candidate)
        if candidate.nodes & covered:
            twice = bits(candidate.nodes & covered)
            raise SearchError(f"{name} covers binding {next(twice)} a second time", value=candidate)
        covered |= candidate.nodes
        if not SubGraph(graph, candidate.nodes).is_convex:
            raise SearchError(f"{name} is not convex: it needs its own output", value=candidate)
        _validate_composites(graph, candidate)
    if covered != graph.all_nodes:
        missing = next(bits(graph.all_nodes & ~covered))
        raise SearchError(
            f"binding {missing} ({graph.op_name(missing)}) is not covered", value=missing
        )
    quotient_order(graph, partitioning.candidates)
    done = 0
    for candidate in partitioning.candidates:
        if SubGraph(graph, candidate.nodes).input & ~done:
            raise SearchError(
                f"{describe(graph, candidate)} stands before what it needs", value=candidate
            )
        done |= candidate.nodes


def _validate_composites(graph: DataflowGraph, candidate: Candidate) -> None:
    inside, aliases = 0, graph.aliases(candidate.nodes)
    for composite in candidate.composites:
        read = SubGraph(graph, composite.nodes).input & candidate.nodes
        used = sum({1 << aliases.get(index, index) for index in bits(read)}) & candidate.nodes
        used &= ~composite.nodes
        if composite.nodes & inside or used & ~inside:
            raise SearchError(
                f"{describe(graph, candidate)}: composite '{composite.name}' overlaps another or "
                "stands before what it needs",
                value=composite,
            )
        inside |= composite.nodes
    if candidate.composites and inside != candidate.nodes & ~graph.idle(candidate.nodes):
        raise SearchError(
            f"{describe(graph, candidate)}: its composites are not all of it", value=candidate
        )


def describe(graph: DataflowGraph, candidate: Candidate) -> str:
    """A candidate in the words of a message: backend, bindings, operators.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings it holds.
    candidate : Candidate
        Of which at most four bindings are named.

    Returns
    -------
    str
        For example ``onednn[0:nn.conv2d, 1:add]``.
    """
    indices = list(bits(candidate.nodes & graph.all_nodes))
    shown = ", ".join(f"{i}:{graph.op_name(i)}" for i in indices[:4])
    more = ", …" if len(indices) > 4 else ""
    return f"{candidate.backend}[{shown}{more}]"
