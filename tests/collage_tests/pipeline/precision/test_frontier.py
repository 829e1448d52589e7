"""Partitionings between time and error: against all there are."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.precision.frontier import frontier
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
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

times = st.lists(st.integers(1, 50), min_size=LENGTH, max_size=LENGTH)


@given(slow=times, saved=times, squares=times, allowed=st.integers(1, 120))
def test_no_partitioning_beats_one_of_the_frontier_in_both(
    slow: list[int], saved: list[int], squares: list[int], allowed: int
) -> None:
    exact = [Candidate(1 << i, EXACT) for i in range(LENGTH)]
    fewer = [Candidate(1 << i, FEWER) for i in range(LENGTH)]
    table = {c: (50 + sec) * 1e-4 for c, sec in zip(exact, slow, strict=True)}
    table |= {c: table[e] - sec * 1e-4 for c, e, sec in zip(fewer, exact, saved, strict=True)}
    errors = ErrorModel(
        math.sqrt(allowed) * 1e-3, "bfloat16", {i: n * 1e-6 for i, n in enumerate(squares)}
    )
    costs = TableCosts(table)

    def cheapest(priced: CandidateCosts) -> Partitioning | None:
        return search(CHAIN, [*exact, *fewer], priced).partitioning

    points = frontier(cheapest, costs, errors)
    everything = [
        (sum(table[c] for c in chosen), errors.error(chosen))
        for chosen in itertools.product(*zip(exact, fewer, strict=True))
    ]
    for point in points:
        seconds = sum(table[c] for c in point.partitioning.candidates)
        assert point.error == pytest.approx(errors.error(point.partitioning.candidates))
        assert point.error <= errors.max_error
        close = 1 + 1e-9
        assert not any(
            sec * close < seconds and error <= point.error * close for sec, error in everything
        )
    assert points[-1].error == 0.0
    assert [p.error for p in points] == sorted((p.error for p in points), reverse=True)


def test_when_the_time_is_up_there_are_no_points() -> None:
    costs = TableCosts({})
    errors = ErrorModel(1e-2, "bfloat16", {})
    assert frontier(lambda priced: None, costs, errors, lambda: True) == []
