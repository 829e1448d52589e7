"""Groups are cut where a tensor grows behind a product, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.search.dataflow import DataflowGraph, bits
from collage.search.fusion import fuse_ops_groups
from collage.search.growth import apart_where_growing
from collage.search.partitioning import quotient
from collage.testing import constant, graph

Emit = Callable[[relax.Expr], relax.Var]


def _parts(mod: Any) -> tuple[DataflowGraph, list[list[str]]]:
    dataflow = DataflowGraph.from_function(mod["main"])
    parts = apart_where_growing(dataflow, fuse_ops_groups(dataflow))
    return dataflow, [[dataflow.op_name(i) for i in bits(part)] for part in parts]


def _excited(emit: Emit, x: relax.Var) -> relax.Expr:
    squeezed = emit(op.mean(x, [2, 3], keepdims=True))
    small = emit(op.nn.relu(emit(op.nn.conv2d(squeezed, constant(2, 8, 1, 1)))))
    scale = emit(op.sigmoid(emit(op.nn.conv2d(small, constant(8, 2, 1, 1)))))
    return op.nn.relu(emit(op.add(emit(op.multiply(x, scale)), x)))


def test_a_picture_is_scaled_in_a_kernel_of_its_own() -> None:
    _, parts = _parts(graph([(1, 8, 6, 6)], _excited))
    assert ["nn.conv2d", "sigmoid"] in parts
    assert ["multiply", "add", "nn.relu"] in parts


@pytest.mark.parametrize(
    "body",
    [
        lambda emit, x: op.nn.relu(emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))),
        # A norm's kernel goes over its rows again.
        lambda emit, x: op.subtract(x, emit(op.mean(x, [3], keepdims=True))),
    ],
)
def test_what_does_not_grow_behind_a_product_stays(body: Any) -> None:
    dataflow, parts = _parts(graph([(1, 8, 6, 6)], body))
    whole = fuse_ops_groups(dataflow)
    assert parts == [[dataflow.op_name(i) for i in bits(group)] for group in whole]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_parts_cover_the_groups_and_none_waits_for_itself(
    steps: list[tuple[int, int, int]],
) -> None:
    """Convolutions of small pictures, and element-wise operators of pictures of either size."""

    def body(emit: Emit, x: relax.Var, small: relax.Var) -> relax.Expr:
        values: list[relax.Var] = [x, small]
        for what, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            match what:
                case 0:
                    values.append(emit(op.nn.conv2d(a, constant(4, 4, 1, 1))))
                case 1:
                    values.append(emit(op.mean(a, [2, 3], keepdims=True)))
                case 2:
                    values.append(emit(op.nn.relu(a)))
                case _:
                    values.append(emit(op.add(a, b)))
        return relax.Tuple([values[-1], values[len(values) // 2]])

    dataflow = DataflowGraph.from_function(graph([(1, 4, 3, 3), (1, 4, 1, 1)], body)["main"])
    groups = fuse_ops_groups(dataflow)
    parts = apart_where_growing(dataflow, groups)
    assert sum(parts) == sum(groups) == dataflow.all_nodes
    for part in parts:
        assert any(part & ~group == 0 for group in groups)
    assert nx.is_directed_acyclic_graph(quotient(dataflow, parts))
