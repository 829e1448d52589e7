"""The cheapest cover where it takes many states, or more than there is time for."""

from __future__ import annotations

import math
import random

import pytest

from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph, bits
from collage.search.strategies.cover import cheapest_cover
from collage.search.strategies.lazy_search import search
from collage.search.subgraph import SubGraph
from collage.testing.search_contract import (
    TARGETS,
)
from tests.search_tests.strategies.small_graphs import chain


def test_limit_on_states_still_gives_a_valid_cover() -> None:
    graph, table = chain(30, (1, 2, 3, 4, 5), seed=5)
    costs = {c.nodes: s for c, s in table.items()}
    best = cheapest_cover(graph, costs)
    hurried = cheapest_cover(graph, costs, max_states=3)
    assert best is not None and hurried is not None
    assert best.optimal and not hurried.optimal
    assert sum(hurried.blocks) == graph.all_nodes
    assert hurried.cost >= best.cost


def crossing_chains(width: int = 12, depth: int = 20) -> tuple[DataflowGraph, dict[int, float]]:
    """Parallel chains numbered in turn, with candidates along each: every step leaves holes."""
    uses = [[i - width] if i >= width else [] for i in range(width * depth)]
    graph = DataflowGraph.from_uses(uses)
    rng = random.Random(6)
    table = {}
    for lane in range(width):
        for row in range(depth):
            for length in (1, 2, 3):
                if row + length <= depth:
                    nodes = sum(1 << ((row + k) * width + lane) for k in range(length))
                    table[nodes] = length * rng.uniform(0.8, 1.3)
    return graph, table


@pytest.mark.parametrize("looks", [0, 1, 2, 5, 40])
def test_who_has_no_time_gets_a_good_cover_and_no_bound(looks: int) -> None:
    """Crossing chains take thousands of states."""
    graph, table = crossing_chains()
    left = iter([False] * looks)
    hurried = cheapest_cover(graph, table, should_stop=lambda: next(left, True))
    best = cheapest_cover(graph, table)
    assert best is not None and hurried is not None
    assert sum(hurried.blocks) == graph.all_nodes
    assert hurried.cost >= best.cost
    assert best.optimal and (looks == 40 or not hurried.optimal)
    costs = {Candidate(nodes, TARGETS[0]): seconds for nodes, seconds in table.items()}
    left = iter([False] * looks)
    found = search(graph, list(costs), TableCosts(costs), should_stop=lambda: next(left, True))
    assert found.complete or found.optimistic_sec <= best.cost * (1 + 1e-9)


def test_crossing_chains_stay_tractable() -> None:
    width, depth = 12, 20
    graph, table = crossing_chains(width, depth)
    cover = cheapest_cover(graph, table)
    assert cover is not None and cover.optimal
    # The chains do not touch, so the optimum is the sum of theirs.
    total = 0.0
    for lane in range(width):
        best = [0.0] + [math.inf] * depth
        for row in range(depth):
            for length in (1, 2, 3):
                if row + length <= depth:
                    nodes = sum(1 << ((row + k) * width + lane) for k in range(length))
                    best[row + length] = min(best[row + length], best[row] + table[nodes])
        total += best[depth]
    assert cover.cost == pytest.approx(total)
    assert all(SubGraph(graph, block).is_convex for block in cover.blocks)
    assert sum(1 for _ in bits(sum(cover.blocks))) == len(graph)
