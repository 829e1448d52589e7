"""Refinement on end-to-end time: better, never worse, resumable, nothing measured twice."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning, validate
from collage.search.rules import default_rules
from collage.search.strategies.evolutionary import RefineProgress, refine
from collage.search.strategies.without_costs import single_backend
from collage.testing.search_contract import TARGETS
from tests.search_tests import networks
from tests.search_tests.networks import edges
from tests.search_tests.toy_backends import ALL_TARGETS, TVM_TARGET


class Stopwatch:
    """End-to-end time with a price for every border between backends, which no sum has."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.calls: Counter[tuple[tuple[int, str], ...]] = Counter()
        self.speed = {"tvm": 2.0, "toyregion": 1.0, "toyop": 0.9, "one": 1.0, "two": 1.5}

    def __call__(self, partitioning: Partitioning) -> float:
        validate(self.graph, partitioning)
        self.calls[partitioning.key()] += 1
        owner = {i: c for c in partitioning.candidates for i in bits(c.nodes)}
        borders = sum(owner[a].backend != owner[b].backend for a, b in edges(self.graph))
        work = sum(
            0.5 + self.speed[c.backend] * c.nodes.bit_count()
            for c in partitioning.candidates
            if not c.inline
        )
        return work + 3.0 * borders


@pytest.fixture
def graph() -> DataflowGraph:
    return DataflowGraph.from_function(networks.residual_block())


def test_finds_a_faster_program(graph: DataflowGraph) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    clock = Stopwatch(graph)
    seen: list[RefineProgress] = []
    found = refine(graph, start, candidates, clock, trials=40, seed=1, progress=seen.append)
    validate(graph, found)
    before = clock(start)
    assert found.seconds is not None and found.seconds < before
    assert found.origin == "refined"
    assert seen[0].move == "start" and seen[0].seconds == before
    assert [p.best_sec for p in seen] == sorted((p.best_sec for p in seen), reverse=True)
    assert {p.move for p in seen} > {"start", "merge"}


def test_no_partitioning_is_measured_twice_but_for_the_final_check(graph: DataflowGraph) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    clock = Stopwatch(graph)
    found = refine(graph, start, candidates, clock, trials=25)
    twice = {key for key, times in clock.calls.items() if times > 1}
    assert twice == {start.key(), found.key()}
    assert sum(clock.calls.values()) == 1 + 25 + 2


def test_never_worse_than_the_start(graph: DataflowGraph) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)

    def others_fail(partitioning: Partitioning) -> float:
        return 1.0 if partitioning.key() == start.key() else math.inf

    found = refine(graph, start, candidates, others_fail, trials=10)
    assert found.key() == start.key() and found.seconds == 1.0


def test_a_lucky_measurement_is_found_out(graph: DataflowGraph) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    seen: Counter[tuple[tuple[int, str], ...]] = Counter()

    def fast_only_once(partitioning: Partitioning) -> float:
        seen[partitioning.key()] += 1
        if partitioning.key() == start.key():
            return 1.0
        return 0.5 if seen[partitioning.key()] == 1 else 2.0

    found = refine(graph, start, candidates, fast_only_once, trials=5)
    assert found.key() == start.key() and found.seconds == 1.0


def test_goes_on_from_its_storage(graph: DataflowGraph, tmp_path: Path) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    storage = f"sqlite:///{tmp_path / 'refine.db'}"
    clocks = [Stopwatch(graph), Stopwatch(graph)]
    results = [refine(graph, start, candidates, clock, 12, storage, "residual") for clock in clocks]
    first, second = (set(clock.calls) for clock in clocks)
    # Both confirm; the second proposes nothing that the first had measured.
    assert first & second <= {start.key(), results[0].key(), results[1].key()}
    assert (results[1].seconds or math.inf) <= (results[0].seconds or math.inf)
    assert sum(clocks[1].calls.values()) == 12 + 2


def test_a_study_of_another_graph_is_refused(graph: DataflowGraph, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'refine.db'}"
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    refine(graph, start, [], Stopwatch(graph), 0, storage, "s")
    other = DataflowGraph.from_function(networks.attention_block())
    with pytest.raises(SearchError, match="study 's' is of another graph"):
        refine(
            other,
            single_backend(other, TVM_TARGET, TVM_TARGET),
            [],
            Stopwatch(other),
            1,
            storage,
            "s",
        )


def test_the_same_seed_makes_the_same_moves(graph: DataflowGraph) -> None:
    candidates = default_rules(ALL_TARGETS).find(graph).candidates
    start = single_backend(graph, TVM_TARGET, TVM_TARGET)
    clocks = [Stopwatch(graph), Stopwatch(graph)]
    results = [refine(graph, start, candidates, clock, 15, seed=3) for clock in clocks]
    assert results[0] == results[1]
    assert clocks[0].calls == clocks[1].calls


def test_stops_when_every_neighbour_is_known() -> None:
    graph = DataflowGraph.from_uses([[], [0]])
    alone = [Candidate(1, TARGETS[0]), Candidate(2, TARGETS[0])]
    both = Candidate(3, TARGETS[1])
    start = Partitioning(tuple(alone))
    clock = Stopwatch(graph)
    found = refine(graph, start, [*alone, both], clock, trials=50)
    assert [c.nodes for c in found.candidates] == [3]
    assert len(clock.calls) == 2


def test_cycles_are_never_measured() -> None:
    graph = DataflowGraph.from_uses([[], [], [0, 1], [0, 1]])
    alone = [Candidate(1 << i, TARGETS[0]) for i in range(4)]
    pairs = [Candidate(0b0101, TARGETS[0]), Candidate(0b1010, TARGETS[0])]
    clock = Stopwatch(graph)  # Validates everything that it is given.
    found = refine(graph, Partitioning(tuple(alone)), [*alone, *pairs], clock, trials=20)
    assert sum(c.nodes.bit_count() == 2 for c in found.candidates) == 1
