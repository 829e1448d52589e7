"""Rows that are none, held inside of what they are looked up in.

Nobody knows what they are computed from: a place that marks an edge or a token as none may lie
outside of the table, and the row behind those that there are is a copy of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx

from collage.importers.torch.meant import Known
from collage.importers.torch.places import chosen_rows_operator

aten = torch.ops.aten

_BY_ONE: dict[str, tuple[int | None, int]] = {
    "embedding.default": (0, 1),
    "gather.default": (None, 2),
    "index_select.default": (None, 2),
    "scatter.src": (None, 2),
    "scatter.value": (None, 2),
    "scatter_add.default": (None, 2),
    "scatter_reduce.two": (None, 2),
}
"""The axis, where it is none of the arguments, and where the indices stand."""

_SHAPING = frozenset(
    [
        operator.getitem,
        aten.alias.default,
        aten.clone.default,
        aten._to_copy.default,
        aten.expand.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unbind.int,
        aten.unsqueeze.default,
        aten.view.default,
    ]
)


def holding(graph: fx.Graph, known: Known, node: fx.Node, name: str) -> Callable[[], None] | None:
    """What lets a node look up nothing outside of a table.

    Parameters
    ----------
    graph : torch.fx.Graph
        Is changed by what is given.
    known : mapping of fx.Node to Rows
        What has rows of which some are none.
    node : torch.fx.Node
        Of any operator.
    name : str
        The operator's.

    Returns
    -------
    callable or None
        None where nothing is to be done.
    """
    if name in _BY_ONE:
        axis, at = _BY_ONE[name]
        extent = _extent(node, int(node.args[1]) if axis is None else axis)
        if not _may_be_outside(known, node.args[at], extent):
            return None
        return lambda: _hold_one(graph, node, at, extent)
    if name not in ("index.Tensor", "index_put.default"):
        return None
    axes = [
        axis
        for axis, index in enumerate(node.args[1])
        if index is not None and _may_be_outside(known, index, _extent(node, axis))
    ]
    return (lambda: _hold_several(graph, node, axes)) if axes else None


def _extent(node: fx.Node, axis: int) -> int:
    return int(node.args[0].meta["val"].shape[axis])


def _may_be_outside(known: Known, index: fx.Node, extent: int) -> bool:
    if index not in known or index.meta["val"].dtype == torch.bool:
        return False
    among = known[index].among
    in_order = bool(among) and sum(n for _, n in among) <= extent
    return not in_order and not _is_of_places(index)


def _is_of_places(index: fx.Node) -> bool:
    """Whether an index is where a mask holds: zeros behind, which is in any table."""
    while index.target in _SHAPING:
        index = index.args[0]
    return index.target is chosen_rows_operator()


def _hold_one(graph: fx.Graph, node: fx.Node, at: int, extent: int) -> None:
    index = node.args[at]
    with graph.inserting_before(node):
        held = graph.call_function(aten.clamp.default, (index, 0, extent - 1))
    held.meta["val"] = index.meta["val"]
    node.args = (*node.args[:at], held, *node.args[at + 1 :])


def _hold_several(graph: fx.Graph, node: fx.Node, axes: list[int]) -> None:
    indices = list(node.args[1])
    for axis in axes:
        index = indices[axis]
        with graph.inserting_before(node):
            # Those below zero count from the end: one place more, for what is none, is no part.
            held = graph.call_function(aten.remainder.Scalar, (index, _extent(node, axis)))
        held.meta["val"] = index.meta["val"]
        indices[axis] = held
    node.args = (node.args[0], indices, *node.args[2:])
