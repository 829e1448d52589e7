"""The search while costs become known one by one, in whatever order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import islice
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.target import Target

from collage.backends.contract import BackendTarget
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import make_partitioning, validate
from collage.search.strategies.exhaustive import exhaustive_search
from collage.search.strategies.lazy_search import (
    Expect,
    Peek,
    Wanted,
    search,
)
from collage.testing.search_contract import (
    TARGETS,
)
from tests.search_tests.strategies.small_graphs import Instance, instances


def _dear(candidate: Candidate) -> float:
    return math.inf


class Streaming:
    """Evaluates so many candidates at once; of those under way any may be known next."""

    def __init__(self, truth: TableCosts, busy: int, seed: int = 0) -> None:
        self._truth, self._busy = truth, busy
        self._random = random.Random(seed)
        self.answers: dict[Candidate, float] = {}
        self.settled = False

    def __call__(self, wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
        under_way: list[Candidate] = []
        while (wants := wanted(self.answers.get, _dear)) is not None:
            urgent = [c for c in wants.urgent if c not in under_way]
            room = max(0, self._busy - len(under_way) - len(urgent))
            known = {*under_way, *urgent, *self.answers}
            others = islice((c for c in wants.offered if c not in known), room)
            under_way += dict.fromkeys([*urgent, *others])
            known_next = under_way.pop(self._random.randrange(len(under_way)))
            (seconds,) = self._truth.seconds([known_next])
            assert seconds is not None
            self.answers[known_next] = seconds
        self.settled = True
        return True


@settings(max_examples=300, deadline=None)
@given(instances(), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_costs_what_the_best_of_all_covers_costs(
    instance: Instance, busy: int, batch_size: int, seed: int
) -> None:
    graph, table = instance
    best = exhaustive_search(graph, list(table), TableCosts(table))
    bounds = {c: 0.5 * s for c, s in table.items() if s < math.inf}
    for below in ({}, bounds):
        costs = TableCosts(table, below)
        stream = Streaming(TableCosts(table), busy, seed)
        found = search(graph, list(table), costs, stream=stream, batch_size=batch_size)
        assert found.complete and found.partitioning is not None
        validate(graph, found.partitioning)
        assert found.partitioning.seconds == best.seconds
        assert len(costs.asked) == len(set(costs.asked)) == found.evaluated
        in_rounds = TableCosts(table, below)
        assert found == search(graph, list(table), in_rounds, batch_size=batch_size)
        assert costs.asked == in_rounds.asked, "whatever became known first"


def test_whoever_would_be_idle_gets_what_the_search_is_going_to_want() -> None:
    """Every alternative looks cheaper than it is, so one after the other has to be asked."""
    graph = DataflowGraph.from_uses([[]])
    cores = [Target({"kind": "llvm", "num-cores": count}) for count in range(1, 9)]
    targets = [BackendTarget.of("tvm", target) for target in cores]
    table = {Candidate(0b1, t): 10.0 + n for n, t in enumerate(targets)}
    bounds = {candidate: 1.0 + n for n, candidate in enumerate(table)}
    alone = search(graph, list(table), TableCosts(table, bounds))
    assert alone.rounds == 9
    for busy in (1, 3, 100):
        stream = Streaming(TableCosts(table), busy)
        found = search(graph, list(table), TableCosts(table, bounds), stream=stream)
        assert stream.settled and found == alone
        assert set(stream.answers) == set(table)


def test_later_rounds_are_offered_before_what_nothing_speaks_for() -> None:
    graph = DataflowGraph.from_uses([[], [0]])
    first, second, both = (Candidate(nodes, TARGETS[0]) for nodes in (0b01, 0b10, 0b11))
    table, bounds = {first: 3.0, second: 3.0, both: 1.0}, {first: 2.0, second: 2.0, both: 0.5}
    costs = TableCosts(table, bounds)
    wants: list[list[Candidate]] = []

    def stream(wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
        now = wanted({}.get, _dear)
        assert now is not None
        wants.extend([list(now.urgent), list(now.offered)])
        # Once it is known, what is offered is not waited for.
        assert wanted({both: 1.0}.get, _dear) is None
        return True

    found = search(graph, [first, second, both], costs, stream=stream)
    assert wants == [[both], [first, second]]
    assert found.complete and costs.asked == [both] and found.evaluated == 1


def test_seeds_are_wanted_before_all_else_and_together() -> None:
    graph = DataflowGraph.from_uses([[], [0]])
    first, second, both = (Candidate(nodes, TARGETS[0]) for nodes in (0b01, 0b10, 0b11))
    costs = TableCosts({first: 1.0, second: 1.0, both: 3.0})
    seeds = [make_partitioning(graph, [both]), make_partitioning(graph, [first, second])]
    urgent: list[set[Candidate]] = []

    def stream(wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
        for known in ({}, {first: 1.0, both: 3.0}, {first: 1.0, both: 3.0, second: 1.0}):
            now = wanted(known.get, _dear)
            urgent.append(set() if now is None else set(now.urgent))
        return True

    found = search(graph, [], costs, seeds=seeds, stream=stream)
    assert urgent == [{first, second, both}, {second}, set()]
    assert found.partitioning is not None and found.partitioning.seconds == 2.0


def test_what_no_longer_holds_is_asked_again_in_turn() -> None:
    graph = DataflowGraph.from_uses([[], [0]])
    first, second, both = (Candidate(nodes, TARGETS[0]) for nodes in (0b01, 0b10, 0b11))
    table = {first: 3.0, second: 3.0, both: 7.0}
    bounds = {first: 2.0, second: 2.0, both: 0.5}
    early, late = TableCosts({both: 1.0}, bounds), TableCosts(table, bounds)

    class Changing:
        now: CandidateCosts = early

        def __getattr__(self, name: str) -> object:
            return getattr(self.now, name)

    costs = Changing()

    def stream(wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
        assert wanted({both: 1.0}.get, _dear) is None
        costs.now = late
        return False

    found = search(graph, list(table), cast("CandidateCosts", costs), stream=stream)
    assert found == search(graph, list(table), TableCosts(table, bounds))
    assert found.partitioning is not None and found.partitioning.seconds == 6.0
