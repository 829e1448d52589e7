"""The validator finds what is wrong and says so."""

from __future__ import annotations

import pytest

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate, Composite
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import (
    Partitioning,
    make_partitioning,
    quotient_order,
    validate,
)
from collage.testing.search_contract import TARGETS

TVM, ONE, _ = TARGETS
CHAIN = DataflowGraph.from_uses([[], [0], [1]])
BUTTERFLY = DataflowGraph.from_uses([[], [], [0, 1], [0, 1]])


def of(*nodes: int) -> Partitioning:
    return Partitioning(tuple(Candidate(n, ONE) for n in nodes))


def test_a_good_one_passes() -> None:
    validate(CHAIN, of(0b001, 0b110))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((0b001, 0b010), "binding 2 \\(op2\\) is not covered"),
        ((0b011, 0b110), "covers binding 1 a second time"),
        ((0b101, 0b010), "is not convex"),
        ((0b111, 0b1000), "reaches outside the graph"),
        ((0b111, 0), "is empty"),
        ((0b110, 0b001), "stands before what it needs"),
    ],
)
def test_broken_ones_are_named(nodes: tuple[int, ...], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        validate(CHAIN, of(*nodes))


def test_a_cycle_is_named_with_its_members() -> None:
    with pytest.raises(SearchError, match="wait for each other") as caught:
        validate(BUTTERFLY, of(0b0101, 0b1010))
    assert {c.nodes for c in caught.value.value} == {0b0101, 0b1010}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("composites", "message"),
    [
        ((Composite("one.b", 0b110), Composite("one.a", 0b001)), "'one.b' overlaps another or"),
        ((Composite("one.a", 0b011), Composite("one.b", 0b110)), "'one.b' overlaps another or"),
        ((Composite("one.a", 0b011),), "are not all of it"),
    ],
)
def test_composites_are_checked(composites: tuple[Composite, ...], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        validate(CHAIN, Partitioning((Candidate(0b111, ONE, composites),)))


def test_order_runs_and_is_by_first_binding() -> None:
    graph = DataflowGraph.from_uses([[], [], [0], [1], [2, 3]])
    parts = [Candidate(n, TVM) for n in (0b10000, 0b01010, 0b00101)]
    assert [c.nodes for c in quotient_order(graph, parts)] == [0b00101, 0b01010, 0b10000]
    assert make_partitioning(graph, parts).candidates == tuple(quotient_order(graph, parts))


def test_key_ignores_order_and_rule() -> None:
    a, b = Candidate(1, TVM, rule="x"), Candidate(6, ONE)
    assert Partitioning((a, b)).key() == Partitioning((b, Candidate(1, TVM, rule="y"))).key()
    assert Partitioning((a, b)).key() != Partitioning((a, Candidate(6, TVM))).key()
