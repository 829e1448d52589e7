"""Partitionings between time and error: against all there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.cost.deadline import Deadline
from collage.end_to_end import Contender
from collage.pipeline.costing.priced_costs import PricedCosts
from collage.pipeline.covers import Covers
from collage.pipeline.precision.contenders import with_frontier
from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.precision.frontier import frontier
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import Found
from collage.search.strategies.lazy_search import search
from collage.targets import resolve_targets
from collage.testing.graphs import Emit, graph

LENGTH = 5
EXACT, FEWER = resolve_targets(["llvm", {"kind": "onednn", "precision": "bfloat16"}])


def _chain() -> DataflowGraph:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        for _ in range(LENGTH - 1):
            x = emit(op.exp(x))
        return op.exp(x)

    return DataflowGraph.from_function(graph([(4,)], body)["main"])


CHAIN = _chain()


def _cheapest(
    candidates: list[Candidate],
) -> Callable[[CandidateCosts], Partitioning | None]:
    return lambda priced: search(CHAIN, candidates, priced).partitioning


times = st.lists(st.integers(1, 50), min_size=LENGTH, max_size=LENGTH)


@given(slow=times, saved=times, squares=times, allowed=st.integers(1, 120))
def test_points_keep_to_the_error_and_to_what_is_possible(
    slow: list[int], saved: list[int], squares: list[int], allowed: int
) -> None:
    exact = [Candidate(1 << i, EXACT) for i in range(LENGTH)]
    fewer = [Candidate(1 << i, FEWER) for i in range(LENGTH)]
    table = {c: (50 + sec) * 1e-4 for c, sec in zip(exact, slow, strict=True)}
    table |= {c: table[e] - sec * 1e-4 for c, e, sec in zip(fewer, exact, saved, strict=True)}
    errors = ErrorModel(
        math.sqrt(allowed) * 1e-3, "bfloat16", {i: n * 1e-6 for i, n in enumerate(squares)}
    )
    points = frontier(_cheapest([*exact, *fewer]), TableCosts(table), errors)
    everything = [
        (sum(table[c] for c in chosen), errors.error(chosen))
        for chosen in itertools.product(*zip(exact, fewer, strict=True))
    ]
    for point in points:
        candidates = point.partitioning.candidates
        assert point.seconds == pytest.approx(sum(table[c] for c in candidates))
        assert point.error == pytest.approx(errors.error(candidates))
        assert point.error <= errors.max_error
    assert points[-1].error == 0.0
    assert points[-1].seconds == pytest.approx(sum(table[c] for c in exact))
    assert [p.error for p in points] == sorted((p.error for p in points), reverse=True)
    best_sec = min(sec for sec, error in everything if error <= errors.max_error)
    assert best_sec - 1e-9 <= points[0].seconds <= points[-1].seconds + 1e-9


def test_equal_layers_do_not_change_sides_at_once() -> None:
    """A region of all layers is faster in either precision than cut: a dent of the frontier."""
    whole = (1 << LENGTH) - 1
    table = {Candidate(whole, EXACT): 1.0e-3, Candidate(whole, FEWER): 0.5e-3}
    for i in range(LENGTH):
        table |= {Candidate(1 << i, EXACT): 0.24e-3, Candidate(1 << i, FEWER): 0.13e-3}
    for i in range(1, LENGTH):
        low, high = (1 << i) - 1, whole & -(1 << i)
        table |= {
            Candidate(low, FEWER): 0.11e-3 * i,
            Candidate(high, EXACT): 0.21e-3 * (LENGTH - i),
        }
    errors = ErrorModel(0.01, "bfloat16", dict.fromkeys(range(LENGTH), 3e-5))
    points = frontier(_cheapest(list(table)), TableCosts(table), errors)
    # Three of five layers, of 9e-5 in all.
    assert points[0].error == pytest.approx(math.sqrt(9e-5))
    assert points[0].seconds == pytest.approx(0.33e-3 + 0.42e-3)


def test_when_the_time_is_up_there_are_no_points() -> None:
    costs = TableCosts({})
    errors = ErrorModel(1e-2, "bfloat16", {})
    assert frontier(lambda priced: None, costs, errors, lambda: True) == []


def test_with_the_time_for_measuring_spent_what_is_known_is_searched() -> None:
    exact = [Candidate(1 << i, EXACT) for i in range(LENGTH)]
    fewer = [Candidate(1 << i, FEWER) for i in range(LENGTH)]
    costs = TableCosts({**dict.fromkeys(exact, 2e-3), **dict.fromkeys(fewer, 1e-3)})
    costs.seconds([*exact, *fewer])
    errors = ErrorModel(2e-3, "bfloat16", dict.fromkeys(range(LENGTH), 1e-6))
    free = Contender("search", Partitioning(tuple(fewer)))
    covers = Covers((free,), Found(candidates=(*exact, *fewer)))
    late = Deadline.after(0)
    found = with_frontier(covers, CHAIN, costs, errors, lambda one: one, [], late)
    first, *_, last = found.contenders
    assert first.name == "search" and last.name == "exact"
    # Four products of 1e-6 are what 2e-3 allows.
    assert [c.target for c in first.partitioning.candidates].count(FEWER) == 4
    # And where there is no time to look either, the comparison has to judge the first answer.
    assert with_frontier(covers, CHAIN, costs, errors, lambda one: one, [], late, late) == covers


@pytest.mark.parametrize("endless", [1, LENGTH])
def test_what_is_infinitely_bad_is_not_rounded(endless: int) -> None:
    """There was no time to look at any product, or rounding one of them overflows."""
    exact = [Candidate(1 << i, EXACT) for i in range(LENGTH)]
    fewer = [Candidate(1 << i, FEWER) for i in range(LENGTH)]
    costs = TableCosts({**dict.fromkeys(exact, 2e-3), **dict.fromkeys(fewer, 1e-3)})
    # At no price even that costs nothing, and at any other everything.
    assert PricedCosts(costs, lambda _: math.inf, 0.0).seconds(exact) == [2e-3] * LENGTH
    assert PricedCosts(costs, lambda _: math.inf, 1.0).seconds(exact) == [math.inf] * LENGTH
    squares = {i: math.inf if i < endless else 1e-6 for i in range(LENGTH)}
    points = frontier(_cheapest([*exact, *fewer]), costs, ErrorModel(1e-2, "bfloat16", squares))
    rounded = [c for c in points[0].partitioning.candidates if c.target == FEWER]
    assert rounded == fewer[endless:]
    assert points[-1].error == 0.0
