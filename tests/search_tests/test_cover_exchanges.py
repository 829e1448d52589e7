"""Parts of covers that can be exchanged, against their certificates and all ways to mix them."""

from __future__ import annotations

import itertools

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from collage.backends.contract import BackendTarget
from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.cover_exchanges import exchanged, exchanges
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, make_partitioning, quotient, validate
from collage.search.strategies.exhaustive import exhaustive_search
from collage.testing.search_contract import TARGETS
from tests.search_tests.strategies.small_graphs import Instance, instances


def _covers(instance: Instance) -> tuple[DataflowGraph, Partitioning, Partitioning]:
    """The cheapest cover, and the cheapest where every candidate but the last resorts costs more
    the cheaper it was."""
    graph, table = instance
    found = exhaustive_search(graph, list(table), TableCosts(table))
    reverse = {one: 100.0 - seconds if seconds < 100 else seconds for one, seconds in table.items()}
    other = exhaustive_search(graph, list(table), TableCosts(reverse))
    assert found is not None and other is not None
    return graph, found, other


@given(instances())
def test_parts_are_apart_and_change_the_whole(instance: Instance) -> None:
    graph, old, new = _covers(instance)
    parts = exchanges(old, new)
    touched = 0
    for part in parts:
        nodes = sum(one.nodes for one in part.old)
        assert nodes == sum(one.nodes for one in part.new) and not nodes & touched
        assert set(part.old) != set(part.new)
        touched |= nodes
    whole = exchanged(graph, old, parts)
    assert whole is not None and set(whole.candidates) == set(new.candidates)
    none = exchanged(graph, old, [])
    assert none is not None and set(none.candidates) == set(old.candidates)


@given(instances(), st.data())
def test_what_is_mixed_is_a_cover_or_has_a_cycle(instance: Instance, data: st.DataObject) -> None:
    graph, old, new = _covers(instance)
    parts = exchanges(old, new)
    chosen = [part for part in parts if data.draw(st.booleans())]
    mixed = exchanged(graph, old, chosen, "mixed")
    gone = set(itertools.chain.from_iterable(part.old for part in chosen))
    meant = (set(old.candidates) - gone) | {one for part in chosen for one in part.new}
    if mixed is None:
        between = quotient(graph, [one.nodes for one in meant])
        assert not nx.is_directed_acyclic_graph(between)
    else:
        validate(graph, mixed)
        assert set(mixed.candidates) == meant and mixed.origin == "mixed"


def test_parts_cannot_be_made_smaller() -> None:
    one, other, _ = TARGETS
    graph = DataflowGraph.from_uses([[i - 1] if i else [] for i in range(6)])

    def cover(target: BackendTarget, *masks: int) -> Partitioning:
        return make_partitioning(graph, [Candidate(mask, target) for mask in masks])

    old = cover(one, 0b000011, 0b001100, 0b110000)
    new = cover(other, 0b000001, 0b000110, 0b001000, 0b110000)
    # The first two of the old one are held together by what lies across their border.
    assert [len(part.new) for part in exchanges(old, new)] == [3, 1]


def test_orders_that_do_not_agree() -> None:
    one, other, _ = TARGETS
    # The third binding needs the second, and the fourth the first: two pairs that wait for each
    # other, of which each cover has one.
    graph = DataflowGraph.from_uses([[], [], [1], [0]])
    single = [Candidate(1 << index, one) for index in range(4)]
    old = make_partitioning(graph, [Candidate(0b0101, other), single[1], single[3]])
    new = make_partitioning(graph, [Candidate(0b1010, other), single[0], single[2]])
    parted, joined = exchanges(old, new)
    assert exchanged(graph, old, [joined]) is None
    assert exchanged(graph, old, [parted]) is not None
    assert exchanged(graph, old, [parted, joined]) is not None
