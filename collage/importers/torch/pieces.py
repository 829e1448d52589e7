"""Rows in groups of which the data say how many there are, each group computed with on its own.

``x.split(counts.tolist())``, a layer for each of the pieces, ``torch.cat``: how mixtures of experts
compute where their rows are sorted by experts. Every layer is given all rows here, and of each row
what its own layer says of it is kept.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from collage.importers.torch.nodes import give_types, is_about_numbers

aten = torch.ops.aten

_BY_FIRST = frozenset([aten.linear.default, aten.matmul.default, aten.mm.default])
"""Rows of the first operand are rows of the result; what they are multiplied with has others."""

_SAME = frozenset([aten.dropout.default, aten.clone.default, aten.to.dtype, aten._to_copy.default])
_ALONG = {
    aten.chunk.default: 2,
    aten.split.Tensor: 2,
    aten.split_with_sizes.default: 2,
    aten.slice.Tensor: 1,
    aten.select.int: 1,
    aten.softmax.int: 1,
    aten._softmax.default: 1,
}
"""Operators along an axis, and where that stands among their arguments."""


def is_cut_by_data(node: fx.Node) -> bool:
    """Whether a node cuts a tensor into groups of rows of which the data say how many there are.

    Parameters
    ----------
    node : torch.fx.Node
        Of an exported program.

    Returns
    -------
    bool
        False as well where even the number of all rows is not known.
    """
    if node.target is not aten.split_with_sizes.default:
        return False
    sizes, axis = node.args[1], node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    return (
        axis == 0
        and isinstance(sizes, Sequence)
        and len(sizes) > 1
        and all(isinstance(one, fx.Node) and one.target is aten.item.default for one in sizes)
        and isinstance(node.args[0].meta["val"].shape[0], int)
    )


def compute_whole(graph: fx.Graph, cut: fx.Node) -> None:
    """Give every group's layers all rows, and join what they give row by row.

    Nothing is changed where something else is done with the groups.

    Parameters
    ----------
    graph : torch.fx.Graph
        Of a program without writes in place.
    cut : torch.fx.Node
        Of which :func:`is_cut_by_data` holds.
    """
    found = _followed(graph, cut)
    if found is None:
        return
    piece_of, joined = found
    whole, sizes = cut.args[0], [size.args[0] for size in cut.args[1]]
    count = whole.meta["val"].shape[0]
    first = next(node for node in graph.nodes if node in piece_of)
    with graph.inserting_before(first):
        together = _emit(graph, aten.stack.default, list(sizes))
        ends = _emit(
            graph, aten.unsqueeze.default, _emit(graph, aten.cumsum.default, together, 0), 0
        )
        places = _emit(graph, aten.unsqueeze.default, _emit(graph, aten.arange.default, count), 1)
        group = _emit(graph, aten.sum.dim_IntList, _emit(graph, aten.ge.Tensor, places, ends), [1])
    changed = [node for node in piece_of if node.args[0] is not cut]
    for node in set(piece_of).difference(changed):
        node.replace_all_uses_with(whole)
    for join in joined:
        pieces = join.args[0]
        with graph.inserting_before(join):
            result = pieces[0]
            for place, piece in enumerate(pieces[1:], 1):
                shape = [count, *[1] * (join.meta["val"].dim() - 1)]
                mine = _emit(graph, aten.eq.Scalar, group, place)
                mine = _emit(graph, aten.reshape.default, mine, shape)
                result = _emit(graph, aten.where.self, mine, piece, result)
        changed += join.users
        join.replace_all_uses_with(result)
        graph.erase_node(join)
    _forget_types(changed)
    give_types(graph)


def _followed(graph: fx.Graph, cut: fx.Node) -> tuple[Mapping[fx.Node, int], list[fx.Node]] | None:
    """Whose rows a node computes, by node, and where pieces are joined; None where something looks
    at how many rows a piece has."""
    piece_of: dict[fx.Node, int] = {}
    joined: list[fx.Node] = []
    for node in graph.nodes:
        pieces = [piece_of[one] for one in node.all_input_nodes if one in piece_of]
        if node.target is operator.getitem and node.args[0] is cut:
            piece_of[node] = node.args[1]
        elif cut in node.all_input_nodes:
            return None
        elif not pieces or is_about_numbers(node):
            continue
        elif _joins(node, piece_of, len(cut.args[1])):
            joined.append(node)
        elif len(set(pieces)) == 1 and _is_by_rows(node, piece_of):
            piece_of[node] = pieces[0]
        else:
            return None
    return (piece_of, joined) if joined else None


def _joins(node: fx.Node, piece_of: Mapping[fx.Node, int], count: int) -> bool:
    if node.target is not aten.cat.default or (node.args[1:] or (0,))[0] != 0:
        return False
    return [piece_of.get(one) for one in node.args[0]] == list(range(count))


def _is_by_rows(node: fx.Node, piece_of: Mapping[fx.Node, int]) -> bool:
    """Whether each row of a result follows from that row of a piece alone."""
    if node.target is operator.getitem or node.target in _SAME:
        return True
    first = node.args[0]
    others = [one for one in node.all_input_nodes if one not in piece_of]
    rank = first.meta["val"].dim() if first in piece_of and _is_tensor(first) else 0
    if node.target in _BY_FIRST:
        return rank > 1 and all(one in others for one in node.all_input_nodes if one is not first)
    if node.target in _ALONG:
        place = _ALONG[node.target]
        axis = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
        return rank > 0 and axis % rank != 0
    if node.target is aten.layer_norm.default:
        return len(node.args[1]) < rank
    tags = getattr(node.target, "tags", ())
    wide = node.meta["val"].dim() if _is_tensor(node) else 0
    mine = [one for one in node.all_input_nodes if one in piece_of]
    return (
        torch.Tag.pointwise in tags
        and all(_is_tensor(one) and one.meta["val"].dim() == wide for one in mine)
        and all(_is_tensor(one) and one.meta["val"].dim() < wide for one in others)
    )


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _emit(graph: fx.Graph, target: Any, *args: Any) -> fx.Node:
    return graph.call_function(target, args)


def _forget_types(changed: Sequence[fx.Node]) -> None:
    """What follows from these nodes has other shapes now."""
    waiting = list(changed)
    while waiting:
        node = waiting.pop()
        told = node.op == "call_function" and not is_about_numbers(node)
        if told and node.meta.pop("val", None) is not None:
            waiting += node.users
