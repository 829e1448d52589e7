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
        fresh: list[Candidate] = []
        for match in sorted(same, key=lambda c: position[c.nodes.bit_length() - 1]):
            overlapping = [other for other in fresh if other.nodes & match.nodes]
            # As in the pass: within one pattern a match may swallow earlier ones, never cut them.
            swallows = all(other.nodes & ~match.nodes == 0 for other in overlapping)
            if not match.nodes & taken and swallows:
                fresh = [other for other in fresh if not other.nodes & match.nodes]
                fresh.append(match)
        for match in fresh:
            taken |= match.nodes
        chosen += fresh
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
    region = list(range(len(items)))
    """By item its region; a region's first member stands for it."""
    waits_for = [0] * len(items)
    """By region the regions it waits for, as a bit mask."""
    for number in order:
        parents = sorted({region[other] for other in between.predecessors(number)})
        name = blocks.get(items[number])
        behind = 0
        for parent in parents:
            behind |= waits_for[parent]
        # A parent that another parent waits for cannot be joined: that would close a cycle.
        joined = [
            parent
            for parent in parents
            if name is not None and blocks.get(items[parent]) == name and not behind >> parent & 1
        ]
        home = joined[0] if joined else number
        waits = behind
        for parent in parents:
            waits |= 1 << parent
        gone = sum(1 << member for member in {number, *joined})
        region = [home if gone >> own & 1 else own for own in region]
        waits_for[home] = waits & ~gone
        if len(joined) > 1:
            waits_for = [mask & ~gone | 1 << home if mask & gone else mask for mask in waits_for]
    merged: dict[int, list[int]] = {}
    for number in order:
        if items[number] in blocks:
            merged.setdefault(region[number], []).append(items[number])
    return list(merged.values())
