"""The dataflow graph and sub-graphs, against networkx."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.backends.contract.errors import SearchError
from collage.search.dataflow import DataflowGraph, OpKind, bits
from collage.search.subgraph import SubGraph, SubGraphLimits
from tests.search_tests import networks
from tests.search_tests.networks import edges


def test_reads_operators_uses_and_outputs() -> None:
    def body(net: networks.Net, x: relax.Var) -> tuple[relax.Var, ...]:
        y = net.emit(op.nn.relu(x))
        net.emit(op.exp(y))  # Nothing needs it.
        parts = net.emit(op.split(y, 2, axis=1))
        first, second = net.emit(parts[0]), net.emit(parts[1])
        return net.emit(op.concat([second, first], axis=1)), y

    func = networks.function((1, 4, 2, 2), body)
    graph = DataflowGraph.from_function(func)
    names = [graph.op_name(i) for i in range(len(graph))]
    relu, split, concat = (names.index(n) for n in ("nn.relu", "split", "concat"))
    assert sorted(names) == sorted(
        ["nn.relu", "split", "tuple_get_item", "tuple_get_item", "concat", "var", "var"]
    )
    assert "exp" not in names
    assert graph.preds(split) == 1 << relu
    assert graph.preds(concat).bit_count() == 2
    assert graph.op_kind(names.index("tuple_get_item")) is OpKind.HOST
    assert graph.succs(relu) >> split & 1
    outputs = [i for i in range(len(graph)) if graph.is_output(i)]
    assert [graph.op_name(i) for i in outputs] == ["var", "var"]
    for index, binding in enumerate(graph.bindings):
        assert graph.index_of(binding.var) == index
    assert graph.find(func.params[0]) is None
    with pytest.raises(SearchError, match="'x' is not bound"):
        graph.index_of(func.params[0])


@pytest.mark.parametrize(
    "build", [networks.residual_block, networks.inception_block, networks.attention_block]
)
def test_numbering_is_topological_and_repeatable(build: object) -> None:
    func = build()  # type: ignore[operator]
    graph, again = DataflowGraph.from_function(func), DataflowGraph.from_function(func)
    assert all(used < user for used, user in edges(graph))
    assert edges(graph) == edges(again)
    assert [b.var for b in graph.bindings] == [b.var for b in again.bindings]


def test_deep_functions_do_not_recurse() -> None:
    def body(net: networks.Net, x: relax.Var) -> relax.Var:
        for _ in range(3000):
            x = net.emit(op.nn.relu(x))
        return x

    graph = DataflowGraph.from_function(networks.function((2,), body))
    assert len(graph) == 3001  # The output is one more name for the last value.


def test_refuses_what_is_no_dataflow() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        y = builder.emit(op.nn.relu(x))
        builder.emit_func_output(y)
    with pytest.raises(SearchError, match="not in a dataflow block"):
        DataflowGraph.from_function(builder.get()["main"])


@st.composite
def graphs_and_sets(draw: st.DrawFn) -> tuple[DataflowGraph, int]:
    size = draw(st.integers(1, 10))
    uses = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(size)
    ]
    return DataflowGraph.from_uses(uses), draw(st.integers(1, (1 << size) - 1))


@settings(max_examples=300, deadline=None)
@given(graphs_and_sets())
def test_sub_graph_sets_agree_with_networkx(case: tuple[DataflowGraph, int]) -> None:
    graph, nodes = case
    sub, inside = SubGraph(graph, nodes), set(bits(nodes))
    g = nx.DiGraph(edges(graph))
    g.add_nodes_from(range(len(graph)))
    crossing_in = {(a, b) for a, b in g.edges if a not in inside and b in inside}
    crossing_out = {(a, b) for a, b in g.edges if a in inside and b not in inside}
    returned = {i for i in inside if graph.is_output(i)}
    assert set(bits(sub.input)) == {a for a, _ in crossing_in}
    assert set(bits(sub.entry)) == {b for _, b in crossing_in}
    assert set(bits(sub.exit)) == {a for a, _ in crossing_out} | returned
    assert set(bits(sub.output)) == {b for _, b in crossing_out}
    leaves_and_returns = any(nx.has_path(g, b, c) for _, b in crossing_out for c in inside)
    assert sub.is_convex == (not leaves_and_returns)
    for index in range(len(graph)):
        assert set(bits(graph.ancestors(index))) == nx.ancestors(g, index)
        assert set(bits(graph.descendants(index))) == nx.descendants(g, index)
    limits = SubGraphLimits(max_nodes=4, max_outputs=1, allow_taps=False)
    taps = any(set(g.successors(i)) & inside for i in bits(sub.exit))
    assert sub.is_valid(limits) == (
        sub.is_convex and len(inside) <= 4 and sub.exit.bit_count() <= 1 and not taps
    )
