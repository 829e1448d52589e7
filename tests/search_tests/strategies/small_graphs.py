"""Graphs with tables of costs, for searches to be tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.subgraph import SubGraph
from collage.testing.search_contract import TARGETS, table_of

Instance = tuple[DataflowGraph, dict[Candidate, float]]


def chain(size: int, widths: Sequence[int], seed: int) -> Instance:
    """A chain with a candidate for each interval of certain widths."""
    rng = random.Random(seed)
    table = {}
    for width in widths:
        for first in range(size - width + 1):
            nodes = tuple(range(first, first + width))
            table[nodes, 1 if width > 1 else 0] = width * rng.uniform(0.9, 1.3)
    return DataflowGraph.from_uses([[i - 1] if i else [] for i in range(size)]), table_of(table)


@st.composite
def instances(draw: st.DrawFn, max_nodes: int = 8, coverable: bool = True) -> Instance:
    """Random graphs with random convex candidates, connected or not, some of them invalid."""
    size = draw(st.integers(1, max_nodes))
    uses = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else []) for i in range(size)
    ]
    graph = DataflowGraph.from_uses(uses)
    seconds = st.one_of(st.integers(0, 12).map(float), st.just(math.inf))
    table: dict[Candidate, float] = {}
    for index in range(size):
        if coverable or draw(st.booleans()):
            table[Candidate(1 << index, TARGETS[0])] = float(draw(st.integers(1, 12)))
    for _ in range(draw(st.integers(0, 14))):
        nodes = sum(1 << i for i in draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4)))
        if SubGraph(graph, nodes).is_convex:
            target = TARGETS[draw(st.integers(0, 2))]
            table.setdefault(Candidate(nodes, target), draw(seconds))
    return graph, table
