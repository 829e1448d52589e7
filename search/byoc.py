"""What Relax's BYOC passes would choose: ``FuseOpsByPattern``, then ``MergeCompositeFunctions``.

Done here on matches that are already known, so that the choice can be cut, varied and compared; a
test holds it to the real passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import quotient


def choose_matches(
    graph: DataflowGraph, matches: Sequence[Candidate], taken: int = 0
) -> list[Candidate]:
    """The matches ``FuseOpsByPattern`` takes, greedily by priority.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the matches take.
    matches : sequence of Candidate
        One composite each; by pattern, the one of highest priority first.
    taken : int
        Bit mask of bindings that are not to be had.

    Returns
    -------
    list of Candidate
        Disjoint.
    """
    by_pattern: dict[str, list[Candidate]] = {}
    for match in matches:
        by_pattern.setdefault(match.rule, []).append(match)
    position = program_positions(graph)
    chosen: list[Candidate] = []
    for same in by_pattern.values():
        fresh: dict[int, Candidate] = {}
        holder: dict[int, int] = {}
        for match in sorted(same, key=lambda c: position[c.nodes.bit_length() - 1]):
            indices = list(bits(match.nodes))
            overlapping = {holder[index] for index in indices if index in holder}
            # As in the pass: within one pattern a match may swallow earlier ones, never cut them.
            swallows = all(nodes & ~match.nodes == 0 for nodes in overlapping)
            if not match.nodes & taken and swallows:
                for nodes in overlapping:
                    del fresh[nodes]
                fresh[match.nodes] = match
                holder.update(dict.fromkeys(indices, match.nodes))
        for nodes in fresh:
            taken |= nodes
        chosen += fresh.values()
    return chosen


def program_positions(graph: DataflowGraph) -> list[int]:
    """Where each binding stands in the function: passes go by that order."""
    if graph.function is None:
        return list(range(len(graph)))
    block = graph.function.body.blocks[0].bindings if graph.function.body.blocks else []
    place = {binding.var: number for number, binding in enumerate(block)}
    return [place[binding.var] for binding in graph.bindings]


def merge_composites(graph: DataflowGraph, blocks: Mapping[int, str]) -> list[list[int]]:
    """The regions ``MergeCompositeFunctions`` makes of composites.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the composites hold.
    blocks : mapping of int to str
        Disjoint bit masks of composites with their backend's name.

    Returns
    -------
    list of list of int
        The composites of each region, in topological order.
    """
    position = program_positions(graph)
    claimed = sum(blocks)
    items = [*blocks, *(1 << index for index in bits(graph.all_nodes & ~claimed))]
    between = quotient(graph, items)
    last = [max(position[index] for index in bits(item)) for item in items]
    order = list(nx.lexicographical_topological_sort(between, key=lambda n: last[n]))
    regions = nx.utils.UnionFind(range(len(items)))
    members = [1 << number for number in range(len(items))]
    """By region its items, as a bit mask."""
    waits_for = [0] * len(items)
    """By region the regions it waits for, each by one of its items at least, as a bit mask."""
    for number in order:
        parents = {regions[other] for other in between.predecessors(number)}
        name = blocks.get(items[number])
        behind = 0
        for parent in parents:
            behind |= waits_for[parent]
        # A parent that another parent waits for cannot be joined: that would close a cycle.
        joined = [
            parent
            for parent in parents
            if name is not None
            and blocks.get(items[parent]) == name
            and not behind & members[parent]
        ]
        waits = behind
        for parent in parents:
            waits |= members[parent]
        own = members[number]
        for parent in joined:
            own |= members[parent]
        regions.union(number, *joined)
        members[regions[number]], waits_for[regions[number]] = own, waits & ~own
    merged: dict[int, list[int]] = {}
    for number in order:
        if items[number] in blocks:
            merged.setdefault(regions[number], []).append(items[number])
    return list(merged.values())
