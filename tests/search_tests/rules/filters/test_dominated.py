"""What is left out contains nothing that a kept candidate does not, and a cover always remains."""

from __future__ import annotations

import pytest

from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import validate
from collage.search.rules import UndominatedRule, default_rules
from collage.search.strategies.lazy_search import search
from collage.search.subgraph import SubGraph
from tests.search_tests import networks
from tests.search_tests.rules.test_rules import ALL_TARGETS, BUILDS


@pytest.mark.parametrize("name", BUILDS)
def test_each_candidate_left_out_has_a_kept_heir(name: str) -> None:
    graph = DataflowGraph.from_function(BUILDS[name]())
    rule = default_rules(ALL_TARGETS)
    every, kept = rule.find(graph), UndominatedRule(rule).find(graph)
    assert kept.rejections == every.rejections
    left_out = [c for c in every.candidates if c not in set(kept.candidates)]
    assert set(kept.candidates) <= set(every.candidates)
    for candidate in left_out:
        mine = SubGraph(graph, candidate.nodes)
        heirs = [
            heir
            for heir in kept.candidates
            if heir.target == candidate.target
            and heir.nodes & candidate.nodes == candidate.nodes
            and SubGraph(graph, heir.nodes).input == mine.input
        ]
        assert heirs, "a bigger candidate of the same target that reads nothing else"


@pytest.mark.parametrize("name", BUILDS)
def test_what_is_kept_covers_the_graph(name: str) -> None:
    graph = DataflowGraph.from_function(BUILDS[name]())
    kept = UndominatedRule(default_rules(ALL_TARGETS)).find(graph).candidates
    result = search(graph, kept, TableCosts(dict.fromkeys(kept, 1.0))).partitioning
    assert result is not None
    validate(graph, result)


def test_a_convolution_before_a_residual_sum_stays() -> None:
    graph = DataflowGraph.from_function(networks.residual_block())
    kept = UndominatedRule(default_rules(ALL_TARGETS)).find(graph).candidates
    ends = {
        graph.op_name(SubGraph(graph, c.nodes).exit.bit_length() - 1)
        for c in kept
        if c.backend == "toyregion" and len(c.composites) == 1
    }
    assert "add" in ends, "the sum reads a second value: it may go to another partition"
