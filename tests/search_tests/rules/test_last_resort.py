"""Nothing is without a candidate: last resorts are asked for when others fail, and only then."""

from __future__ import annotations

import math

import pytest
from tvm.relax import op

from collage.backends.contract import NativeBackend
from collage.backends.contract.errors import SearchError
from collage.search import Candidate, DataflowGraph, TableCosts, search
from collage.search.rules import LastResortRule, last_resorts
from collage.targets import resolve_targets
from collage.testing import graph

TARGETS = resolve_targets(["llvm", "onednn"])
NATIVE = TARGETS[0]
BACKEND = NATIVE.implementation
assert isinstance(BACKEND, NativeBackend)
PLAIN = BACKEND.last_resort(NATIVE)
assert PLAIN is not None

_MODULE = graph([(8,)], lambda emit, x: op.exp(emit(op.tanh(emit(op.sin(x))))))
CHAIN = DataflowGraph.from_function(_MODULE["main"])
BOTH, ALONE = Candidate(0b011, TARGETS[1]), Candidate(0b100, NATIVE)


def plain(nodes: int) -> Candidate:
    assert PLAIN is not None
    return Candidate(nodes, PLAIN, rule="last_resort")


def test_what_covers_everything_is_not_helped() -> None:
    costs = TableCosts({BOTH: 3.0, ALONE: 1.0, plain(0b001): 0.1, plain(0b010): 0.1})
    found = search(CHAIN, [BOTH, ALONE], costs, last_resorts=last_resorts(NATIVE))
    assert found.partitioning is not None and found.partitioning.seconds == 4.0
    assert set(costs.asked) == {BOTH, ALONE}


def test_only_operators_that_are_left_over_get_one() -> None:
    costs = TableCosts({BOTH: math.inf, ALONE: 1.0, plain(0b001): 5.0, plain(0b010): 6.0})
    found = search(CHAIN, [BOTH, ALONE], costs, last_resorts=[LastResortRule(PLAIN)])
    assert found.complete and found.partitioning is not None
    assert found.partitioning.seconds == 12.0
    assert plain(0b100) not in costs.asked


def test_single_operators_go_before_the_simplest_kernels() -> None:
    first, second = (Candidate(nodes, NATIVE, rule="kind.elemwise") for nodes in (0b001, 0b010))
    costs = TableCosts({BOTH: math.inf, ALONE: 1.0, first: 2.0, second: 2.0})
    found = search(CHAIN, [BOTH, ALONE], costs, last_resorts=last_resorts(NATIVE))
    assert found.partitioning is not None and found.partitioning.seconds == 5.0
    assert not any(candidate.target == PLAIN for candidate in costs.asked)


def test_candidates_that_do_not_fit_together_leave_room() -> None:
    """Each operator is held by something, but the two overlap."""
    left, right = Candidate(0b011, NATIVE), Candidate(0b110, NATIVE)
    costs = TableCosts(
        {left: 1.0, right: 1.0, plain(0b001): 5.0, plain(0b010): 5.0, plain(0b100): 7.0}
    )
    found = search(CHAIN, [left, right], costs, last_resorts=[LastResortRule(PLAIN)])
    assert found.partitioning is not None and found.partitioning.seconds == 6.0


def test_a_search_that_is_cut_off_has_an_answer_all_the_same() -> None:
    guesses = {plain(0b001): 5.0, plain(0b010): 5.0}
    costs = TableCosts({BOTH: math.inf, ALONE: 1.0}, guesses=guesses)
    found = search(
        CHAIN,
        [BOTH, ALONE],
        costs,
        last_resorts=[LastResortRule(PLAIN)],
        batch_size=1,
        should_stop=lambda: len(costs.asked) >= 2,
    )
    assert found.partitioning is not None and not found.complete
    assert sum(c.nodes for c in found.partitioning.candidates) == CHAIN.all_nodes


def test_all_operators_that_nothing_computes_are_named() -> None:
    costs = TableCosts({BOTH: math.inf, ALONE: 1.0})
    with pytest.raises(SearchError, match=r"binding 0 \(sin\), binding 1 \(tanh\)") as caught:
        search(CHAIN, [BOTH, ALONE], costs, last_resorts=last_resorts(NATIVE))
    assert caught.value.value == (0, 1)
