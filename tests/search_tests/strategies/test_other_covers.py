"""Other covers than the answer: against all covers, tried one by one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, quotient, validate
from collage.search.strategies import exhaustive_search, other_covers
from collage.search.strategies.other_covers import LARGEST_ERROR, STEP
from collage.testing.search_contract import TARGETS, table_of
from tests.search_tests.strategies.small_graphs import Instance, chain, instances

Point = tuple[float, float]
"""Weight and seconds of a cover."""

FEW, OWN = "few parts", "other parts"


def every_cover(graph: DataflowGraph, table: dict[Candidate, float]) -> Iterator[list[Candidate]]:
    usable = [one for one, seconds in table.items() if seconds < math.inf]

    def extend(covered: int, chosen: list[Candidate]) -> Iterator[list[Candidate]]:
        if covered == graph.all_nodes:
            if nx.is_directed_acyclic_graph(quotient(graph, [c.nodes for c in chosen])):
                yield chosen
            return
        first = ~covered & (covered + 1)
        for one in usable:
            if one.nodes & first and not one.nodes & covered:
                yield from extend(covered | one.nodes, [*chosen, one])

    return extend(0, [])


def hull(points: Sequence[Point], most: float) -> list[Point]:
    """Those that are the cheapest at some price on weight up to ``most``, the heaviest first: each
    pair of neighbours is tried against all others."""
    found = []
    for point in set(points):
        # The prices at which it is no worse than each of the others are an interval.
        low, high = 0.0, most
        for other in points:
            lighter, cheaper = point[0] - other[0], other[1] - point[1]
            if lighter > 0:
                high = min(high, cheaper / lighter)
            elif lighter < 0:
                low = max(low, cheaper / lighter)
            elif cheaper < 0:
                high = -1.0
        if low <= high:
            found.append(point)
    return sorted(found, reverse=True)


def expected(
    covers: Sequence[Sequence[Candidate]],
    table: dict[Candidate, float],
    answer: Partitioning,
    weigh: Callable[[Candidate], float],
    count: int,
) -> list[tuple[Point, float]]:
    """The covers of one way by weight and seconds, with the error that each needs."""
    points = [
        (math.fsum(map(weigh, cover)), math.fsum(table[c] for c in cover)) for cover in covers
    ]
    weight, seconds = (
        math.fsum(map(weigh, answer.candidates)),
        math.fsum(table[c] for c in answer.candidates),
    )
    corners = hull(points, LARGEST_ERROR * seconds / weight)
    found, limit = [], weight - STEP * weight
    for corner in corners:
        if corner[0] <= limit * (1 + 1e-12) and len(found) < count:
            price = (corner[1] - seconds) / (weight - corner[0])
            found.append((corner, max(0.0, price) * weight / seconds))
            limit = corner[0] - STEP * weight
    return found


def in_turns(
    covers: Sequence[Sequence[Candidate]],
    table: dict[Candidate, float],
    answer: Partitioning,
    count: int,
) -> list[tuple[float, float]]:
    """Seconds and errors of those that are to be found, in their order."""
    kept = set(answer.candidates)
    ways = {
        FEW: expected(covers, table, answer, lambda c: 1.0, count),
        OWN: expected(covers, table, answer, lambda c: table[c] if c in kept else 0.0, count),
    }
    order = sorted(ways.values(), key=lambda found: found[0][1] if found else math.inf)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*order))
    return [(point[1], error) for point, error in filter(None, turns)]


def uneven(table: dict[Candidate, float], seed: int) -> dict[Candidate, float]:
    """No two covers take exactly the same, and none takes nothing."""
    rng = random.Random(seed)
    return {c: (sec + 0.5) * rng.uniform(0.9, 1.1) for c, sec in table.items()}


@settings(max_examples=100, deadline=None)
@given(instances(max_nodes=6), st.integers(0, 999), st.integers(1, 4), st.booleans())
def test_they_are_the_first_corners_of_both_hulls_of_all_covers(
    instance: Instance, seed: int, count: int, best: bool
) -> None:
    graph, table = instance[0], uneven(instance[1], seed)
    costs = TableCosts(table)
    optimum = exhaustive_search(graph, list(table), costs)
    covers = list(every_cover(graph, table))
    # With ties among candidates the answer is not always the optimum.
    answer = optimum if best else Partitioning(tuple(covers[seed % len(covers)]))
    found = other_covers(graph, list(table), costs, answer, count)
    wanted = in_turns(covers, table, answer, count)
    keys = {one.partitioning.key() for one in found} | {answer.key()}
    assert len(keys) == len(found) + 1
    for one in found:
        validate(graph, one.partitioning)
        assert one.partitioning.seconds == pytest.approx(
            math.fsum(table[c] for c in one.partitioning.candidates)
        )
        assert 0.0 <= one.error <= LARGEST_ERROR * (1 + 1e-9)
    # What both ways find counts once, in the order in which it is found first.
    distinct = {round(sec, 9): (sec, error) for sec, error in reversed(wanted)}
    order = list(dict.fromkeys(round(sec, 9) for sec, _ in wanted))[:count]
    assert [one.partitioning.seconds for one in found] == pytest.approx(
        [distinct[sec][0] for sec in order]
    )
    assert [one.error for one in found] == pytest.approx(
        [distinct[sec][1] for sec in order], abs=1e-9
    )


@settings(max_examples=60, deadline=None)
@given(instances(max_nodes=6), st.integers(0, 999), st.floats(0.0, 1.0))
def test_whatever_each_part_takes_besides_none_of_as_few_parts_beats_them(
    instance: Instance, seed: int, share: float
) -> None:
    """What the search is for: the true costs are not known, but the winner is among those found
    unless it has nearly as many parts as one of them."""
    graph, table = instance[0], uneven(instance[1], seed)
    costs = TableCosts(table)
    answer = exhaustive_search(graph, list(table), costs)
    parts = len(answer.candidates)
    price = share * LARGEST_ERROR * (answer.seconds or 0.0) / parts
    others = other_covers(graph, list(table), costs, answer, 99)
    found = [answer, *(one.partitioning for one in others)]

    def whole(candidates: Sequence[Candidate]) -> float:
        return math.fsum(table[c] + price for c in candidates)

    best = min(every_cover(graph, table), key=whole)
    counts = [len(one.candidates) for one in found]
    if any(len(best) == count for count in counts):
        assert min(whole(one.candidates) for one in found) <= whole(best) * (1 + 1e-9)
    else:
        assert any(len(best) > count and len(best) - count < STEP * parts for count in counts) or (
            parts > len(best) > parts - STEP * parts
        )


def test_one_of_other_parts_and_one_of_fewer() -> None:
    """Ten pieces on one backend; another takes 1 % more for each, pairs take 4 % more."""
    graph = DataflowGraph.from_uses([[], *([n] for n in range(9))])
    table = table_of(
        {((n,), 0): 1.0 for n in range(10)}
        | {((n,), 1): 1.01 for n in range(10)}
        | {((n, n + 1), 0): 2.08 for n in range(0, 10, 2)}
    )
    costs = TableCosts(table)
    answer = exhaustive_search(graph, list(table), costs)
    elsewhere, merged = other_covers(graph, list(table), costs, answer, 2)
    assert [one.target for one in elsewhere.partitioning.candidates] == [TARGETS[1]] * 10
    assert elsewhere.error == pytest.approx(0.01)
    # Ten parts take what five do where each takes 0.08 besides.
    assert len(merged.partitioning.candidates) == 5
    assert merged.error == pytest.approx(0.08)


def test_nothing_is_measured_and_what_is_not_known_takes_no_part() -> None:
    graph, table = chain(6, (1, 2, 3), seed=3)
    costs = TableCosts(table)
    known = [one for one in table if one.nodes.bit_count() == 1]
    costs.seconds(known)
    answer = Partitioning(tuple(known))
    asked = len(costs.asked)
    assert other_covers(graph, list(table), costs, answer, 3, largest_error=9.0) == []
    assert len(costs.asked) == asked
    costs.seconds(list(table))
    assert other_covers(graph, list(table), costs, answer, 3, largest_error=9.0)


def test_an_answer_that_was_never_measured_has_no_others() -> None:
    graph, table = chain(3, (1,), seed=3)
    answer = Partitioning(tuple(table))
    assert other_covers(graph, list(table), TableCosts(table), answer, 3) == []


def test_who_has_no_time_has_what_was_found_by_then() -> None:
    graph, table = chain(12, (1, 2, 3), seed=4)
    costs = TableCosts(table)
    costs.seconds(list(table))
    singles = tuple(one for one in table if one.nodes.bit_count() == 1)
    answer = Partitioning(singles)
    everything = other_covers(graph, list(table), costs, answer, 3)
    assert len(everything) > 1
    assert other_covers(graph, list(table), costs, answer, 3, should_stop=lambda: True) == []


def test_the_same_question_has_the_same_answer() -> None:
    graph, table = chain(40, (1, 2, 3, 4), seed=5)
    costs = TableCosts(table)
    costs.seconds(list(table))
    singles = tuple(one for one in table if one.nodes.bit_count() == 1 and one.target == TARGETS[0])
    answer = Partitioning(singles)
    first = other_covers(graph, list(table), costs, answer, 3)
    again = other_covers(graph, list(table), costs, answer, 3)
    assert [one.partitioning for one in first] == [one.partitioning for one in again]
