"""What looks at every candidate takes time in proportion to them: networks have thousands."""

import time
from collections.abc import Callable

import pytest

from collage.search import DataflowGraph, TableCosts, cheapest_cover, search
from collage.search.byoc import choose_matches, merge_composites
from collage.search.candidates import Candidate
from collage.search.rules import Found, PartitionRule, UndominatedRule
from collage.search.rules.regions import RegionsRule
from collage.targets import resolve_targets

_, ONEDNN = resolve_targets(["llvm", "onednn"])

SMALL = 500
FACTOR = 8
"""Linear steps take so many times as long on the large graph, quadratic ones the square of it."""


def chain_of_forks(size: int) -> DataflowGraph:
    """Blocks of one value that two others read and a fourth joins, one after the other."""
    uses: list[list[int]] = []
    while len(uses) < size:
        fork = len(uses)
        uses += [[fork - 1] if fork else [], [fork], [fork], [fork + 1, fork + 2]]
    return DataflowGraph.from_uses(uses)


class SinglesAndPairs(PartitionRule):
    """Each binding alone, and each with its first user."""

    def find(self, graph: DataflowGraph) -> Found:
        nodes = [1 << index for index in range(len(graph))]
        nodes += [
            0b11 << index for index in range(len(graph) - 1) if graph.preds(index + 1) >> index & 1
        ]
        return Found(tuple(Candidate(each, ONEDNN, rule="some") for each in nodes))


def _merged(graph: DataflowGraph) -> object:
    # Every fifth stays outside, so that there are many regions.
    names = {1 << index: "onednn" for index in range(len(graph)) if index % 5}
    return merge_composites(graph, names)


@pytest.mark.parametrize(
    "step",
    [
        lambda graph: UndominatedRule(SinglesAndPairs()).find(graph),
        lambda graph: choose_matches(graph, SinglesAndPairs().find(graph).candidates),
        _merged,
        lambda graph: RegionsRule(SinglesAndPairs()).find(graph),
        lambda graph: _searched(graph),
    ],
    ids=["undominated", "choose_matches", "merge_composites", "regions", "search"],
)
def test_time_grows_with_the_graph_not_with_its_square(
    step: Callable[[DataflowGraph], object],
) -> None:
    small, large = (chain_of_forks(size) for size in (SMALL, FACTOR * SMALL))
    ratios = []
    for _ in range(3):
        ratios.append(_seconds(step, large) / _seconds(step, small))
        if ratios[-1] < 4 * FACTOR:
            return
    raise AssertionError(f"{FACTOR} times the operators took {min(ratios):.0f} times as long")


def _searched(graph: DataflowGraph) -> object:
    candidates = SinglesAndPairs().find(graph).candidates
    table = {c: 1.0 + 0.3 * (n % 7) for n, c in enumerate(candidates)}
    return search(graph, candidates, TableCosts(table, {c: 0.5 * s for c, s in table.items()}))


def test_candidates_of_one_shape_have_hashes_of_their_own() -> None:
    """An int's hash is its remainder by 2^61 - 1: masks 61 bindings apart share it."""
    shifted = [Candidate(0b11 << 61 * n, ONEDNN) for n in range(200)]
    assert len({hash(candidate) for candidate in shifted}) == len(shifted)


def test_a_chain_is_walked_once_however_long() -> None:
    size = 12_000
    graph = DataflowGraph.from_uses([[i - 1] if i else [] for i in range(size)])
    found = cheapest_cover(graph, {1 << i: 1.0 for i in range(size)})
    assert found is not None and found.optimal and found.cost == size
    assert found.expanded == size + 1


def _seconds(step: Callable[[DataflowGraph], object], graph: DataflowGraph) -> float:
    """Of the processor, which other programs do not lengthen much."""
    begin = time.process_time()
    step(graph)
    return time.process_time() - begin
