"""The drawing: boxes never overlap, edges run downwards and around boxes."""

from __future__ import annotations

import itertools

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.report.explain import explain
from collage.report.rendering.figure import operator_figure, partition_figure
from collage.report.rendering.layout import layered_layout
from collage.report.rendering.palette import backend_colors
from tests.collage_tests.report.report_data import resnet_report

GAP = 20.0


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[nx.DiGraph, dict[int, float]]:
    size = draw(st.integers(0, 25))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    for target in range(size):
        sources = st.sets(st.integers(0, target - 1), max_size=4) if target else st.just(set())
        graph.add_edges_from((source, target) for source in draw(sources))
    return graph, {v: draw(st.floats(10, 200)) for v in graph}


@settings(max_examples=150, deadline=None)
@given(_graphs())
def test_layers_and_distances(case: tuple[nx.DiGraph, dict[int, float]]) -> None:
    graph, widths = case
    layout = layered_layout(graph, widths, GAP)
    assert layout is not None
    layer_of = {v: i for i, layer in enumerate(layout.layers) for v in layer}
    assert sorted(layer_of) == sorted(graph)
    for source, target in graph.edges:
        assert layer_of[source] < layer_of[target]
        assert len(layout.bends[source, target]) == layer_of[target] - layer_of[source] - 1
    for number, layer in enumerate(layout.layers):
        passing = [
            bends[number - layer_of[source] - 1]
            for (source, target), bends in layout.bends.items()
            if layer_of[source] < number < layer_of[target]
        ]
        spans = sorted(
            (layout.center_x[v] - widths[v] / 2, layout.center_x[v] + widths[v] / 2) for v in layer
        )
        for (_, right), (left, _) in itertools.pairwise(spans):
            assert left - right >= GAP - 1e-6
        for x in passing:
            assert all(not left < x < right for left, right in spans)
        assert all(left >= -1e-6 and right <= layout.width + 1e-6 for left, right in spans)


def test_straight_chain_is_straight() -> None:
    layout = layered_layout(nx.path_graph(30, create_using=nx.DiGraph), dict.fromkeys(range(30), 9))
    assert layout is not None
    assert len({round(x, 6) for x in layout.center_x.values()}) == 1


def test_figures_of_a_whole_network() -> None:
    report = resnet_report()
    colors = backend_colors(report.backend_labels())
    partitions = partition_figure(report, colors)
    operators = operator_figure(report, colors, explain(report))
    assert partitions is not None
    assert operators is not None
    assert len(partitions.boxes) == len(report.partitions)
    assert len(operators.boxes) == len(report.nodes)
    assert sum(len(b.lines) for b in partitions.boxes) == len(report.nodes)
    assert len(operators.edges) == len({(s, n.index) for n in report.nodes for s in n.inputs})
    owner = {i: p.id for p in report.partitions for i in p.nodes}
    crossing = {(owner[e.source], owner[e.target]) for e in operators.edges if not e.inner}
    assert crossing == {(e.source, e.target) for e in partitions.edges}
    for figure in (partitions, operators):
        for box in figure.boxes:
            assert box.x >= 0
            assert box.x + box.width <= figure.width
            assert box.y + box.height <= figure.height


def test_colours_are_distinct_and_lasting() -> None:
    labels = ["onednn", "tvm", "openblas", "mine", "yours", "onednn layout=nhwc"]
    colors = backend_colors(labels)
    assert len(set(colors.values())) == len(labels)
    assert backend_colors(["tvm", "onednn"])["onednn"] == colors["onednn"]
