"""Large regions for backends with graph granularity: blocks, maximal regions and their pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from collage.search.byoc import choose_matches, merge_composites
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import quotient
from collage.search.rules._base import Found, PartitionRule, distinct
from collage.search.rules.combine import CombineLimits, JoinAdjacent, join, join_adjacent
from collage.search.subgraph import SubGraph, union_of


@dataclass(frozen=True)
class RegionLimits:
    """How many regions to propose.

    Attributes
    ----------
    max_joined : int
        Composites in a small region.
    max_small_per_composite : int
        Small regions grown from one composite.
    max_blocks : int
        Branching blocks in all.
    max_cuts : int
        Places at which a maximal region is cut into a prefix, a suffix and stretches between.

    Examples
    --------
    >>> RegionLimits(max_cuts=2)
    RegionLimits(max_joined=3, max_small_per_composite=12, max_blocks=256, max_cuts=2)
    """

    max_joined: int = 3
    max_small_per_composite: int = 12
    max_blocks: int = 256
    max_cuts: int = 8


class RegionsRule(PartitionRule):
    """Composites of one graph backend joined into regions, besides each match alone.

    Joined are the matches that ``FuseOpsByPattern`` would choose, so that the number of regions
    does not grow with the number of alternative patterns:

    - up to ``max_joined`` adjacent ones;
    - branching blocks: all from where branches part to where they meet again (residual and
      inception blocks), with and without the operator they part from;
    - the maximal regions of ``MergeCompositeFunctions``;
    - those cut where a single value passes through: prefixes, suffixes, stretches between cuts.

    Parameters
    ----------
    rule : PartitionRule
        Finds the matches that are joined.
    limits : RegionLimits, optional
        How many regions are proposed, and how large the small ones are.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.search.rules import MatchRule
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import constant, graph
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> mod = graph(
    ...     [(4, 8)],
    ...     lambda emit, x: op.matmul(emit(op.matmul(x, constant(8, 8))), constant(8, 8)),
    ... )
    >>> found = RegionsRule(MatchRule(onednn)).find(DataflowGraph.from_function(mod["main"]))
    >>> [(candidate.nodes, len(candidate.composites)) for candidate in found.candidates]
    [(1, 1), (2, 1), (3, 2)]
    """

    def __init__(self, rule: PartitionRule, limits: RegionLimits | None = None) -> None:
        self.rule = rule
        self.limits = limits or RegionLimits()

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        parts = choose_matches(graph, found.candidates)
        parts.sort(key=lambda part: part.nodes.bit_length())
        regions = _maximal_regions(graph, parts)
        blocks = _branching_blocks(graph, parts, self.limits.max_blocks)
        pieces = [p for region in regions for p in _pieces(graph, region, self.limits.max_cuts)]
        small = CombineLimits(self.limits.max_joined, self.limits.max_small_per_composite)
        name = "joined"
        return Found(
            distinct(
                [
                    *found.candidates,
                    *join_adjacent(graph, tuple(parts), JoinAdjacent(), small, name),
                    *(join(block, graph, "block") for block in blocks),
                    *(join(region, graph, "maximal") for region in regions if len(region) > 1),
                    *(join(piece, graph, "piece") for piece in pieces),
                ]
            ),
            found.rejections,
        )


def _maximal_regions(graph: DataflowGraph, parts: Sequence[Candidate]) -> list[list[Candidate]]:
    """The chosen matches of one backend, grouped as ``MergeCompositeFunctions`` would."""
    by_nodes = {part.nodes: part for part in parts}
    names = {nodes: part.backend for nodes, part in by_nodes.items()}
    return [[by_nodes[nodes] for nodes in group] for group in merge_composites(graph, names)]


def _branching_blocks(
    graph: DataflowGraph, parts: Sequence[Candidate], limit: int
) -> list[list[Candidate]]:
    """From each forking operator to its immediate post-dominator, where all of it is matched."""
    claimed = sum(part.nodes for part in parts)
    rest = graph.all_nodes & ~claimed
    items = [part.nodes for part in parts]
    items += [1 << index for index in bits(rest)]
    between = quotient(graph, items)
    sink = len(items)
    backward = between.reverse()
    backward.add_edges_from((sink, n) for n in range(len(items)) if items[n] & graph.outputs)
    if sink not in backward:
        return []
    meets = nx.immediate_dominators(backward, sink)
    owner = {index: part for part in parts for index in bits(part.nodes)}
    blocks: list[list[Candidate]] = []
    seen: set[int] = set()
    for fork in nx.lexicographical_topological_sort(between, key=lambda n: items[n].bit_length()):
        graph.step()
        if between.out_degree(fork) < 2 or meets.get(fork, sink) == sink:
            continue
        end = meets[fork]
        inside = union_of(graph.descendants, items[fork]) & union_of(graph.ancestors, items[end])
        inside = (inside | items[end]) & ~items[fork]
        for nodes in (inside, inside | items[fork]):
            if nodes & rest or nodes in seen:
                continue
            touched = {id(owner[index]): owner[index] for index in bits(nodes)}
            whole = sum(part.nodes for part in touched.values())
            if whole != nodes or not SubGraph(graph, nodes).is_convex:
                continue
            seen.add(nodes)
            blocks.append(sorted(touched.values(), key=lambda part: part.nodes.bit_length()))
            if len(blocks) == limit:
                return blocks
    return blocks


def _pieces(
    graph: DataflowGraph, region: Sequence[Candidate], max_cuts: int
) -> list[list[Candidate]]:
    """A region cut after composites that everything in it passes through."""
    parts = sorted(region, key=lambda part: part.nodes.bit_length())
    whole = sum(part.nodes for part in parts)
    cuts = []
    before = 0
    for number, part in enumerate(parts[:-1]):
        graph.step()
        above = union_of(graph.ancestors, part.nodes) | part.nodes
        below = union_of(graph.descendants, part.nodes)
        before |= part.nodes
        if before & ~above == 0 and whole & ~before & ~below == 0:
            cuts.append(number + 1)
    if len(cuts) > max_cuts:
        step = len(cuts) / max_cuts
        cuts = [cuts[int((number + 0.5) * step)] for number in range(max_cuts)]
    ends = [0, *cuts, len(parts)]
    pieces = [parts[:cut] for cut in cuts] + [parts[cut:] for cut in cuts]
    pieces += [parts[a:b] for a, b in pairwise(ends)]
    return [piece for piece in pieces if len(piece) > 1 and len(piece) < len(parts)]
