"""Rivals: nothing is left out that would be in the optimum, were costs as low as their shares."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.strategies import rivalries, search
from collage.targets import resolve_targets

TARGETS = list(resolve_targets(["llvm", "onednn", "openblas"]))
SIZE = 6
SHARE = 0.8


@st.composite
def tables(draw: st.DrawFn) -> dict[Candidate, float]:
    """Costs of all stretches of a chain of up to three, on some targets."""
    stretches = [(b, n) for b in range(SIZE) for n in (1, 2, 3) if b + n <= SIZE]
    table = {}
    for begin, length in stretches:
        for target in TARGETS:
            if (length == 1 and target is TARGETS[0]) or draw(st.booleans()):
                seconds = length * draw(st.floats(1.0, 2.0))
                table[Candidate(((1 << length) - 1) << begin, target)] = seconds
    return table


@settings(max_examples=60, deadline=None)
@given(tables(), st.data())
def test_whatever_costs_become_within_their_shares_the_optimum_is_among_those_found(
    table: dict[Candidate, float], data: st.DataObject
) -> None:
    graph = DataflowGraph.from_uses([[], *([n] for n in range(SIZE - 1))])
    candidates, costs = list(table), TableCosts(table)
    costs.seconds(candidates)
    found = search(graph, candidates, costs)
    assert found.partitioning is not None
    answer = found.partitioning
    pairs = rivalries(graph, candidates, costs, answer, lambda candidate: SHARE)
    for pair in pairs:
        nodes = [math.fsum(c.nodes for c in side) for side in (pair.kept, pair.rival)]
        assert nodes[0] == nodes[1]
        assert set(pair.kept) <= set(answer.candidates)
    involved = {*answer.candidates, *(c for pair in pairs for c in pair.rival)}
    # What is timed again has its cost for sure; of all others any may have been unlucky.
    luck = {c: 1.0 if c in involved else data.draw(st.floats(SHARE, 1.0)) for c in candidates}
    true = TableCosts({c: sec * luck[c] for c, sec in table.items()})
    best = search(graph, candidates, true).partitioning
    known = search(graph, [c for c in candidates if c in involved], TableCosts(table)).partitioning
    assert best is not None and known is not None
    assert known.seconds <= best.seconds * (1 + 1e-9)
