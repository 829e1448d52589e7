"""Choices of rows whose number a program asserts: ``x[mask].view(2, 3)``, ``y + x[mask]``.

A dense batch is padded and its rows are taken back: as many as there were. With a number that is
known there are no rows that are none, or PyTorch's own program fails.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from collage.importers.torch.places import chosen_rows_operator, places_of

aten = torch.ops.aten


def choose_as_asserted(graph: fx.Graph) -> list[fx.Node]:
    """Let what chooses rows give as many as the program asserts.

    Parameters
    ----------
    graph : torch.fx.Graph
        Changed in place; checks of numbers are no part of it any more.

    Returns
    -------
    list of torch.fx.Node
        What chose them, which nothing uses any more.
    """
    found = []
    for node in graph.find_nodes(op="call_function", target=chosen_rows_operator()):
        count = _asserted(node.meta["val"][0].shape[0])
        columns = [user for user in node.users if user.target is operator.getitem]
        if count is None or any(user.args[1] for user in columns):
            continue
        with graph.inserting_before(node):
            rows = _first_places(graph, node.args[0], count)
        for user in columns:
            user.replace_all_uses_with(rows)
        found.append(node)
    return found


def _asserted(number: int | torch.SymInt) -> int | None:
    """What a number that was unknown is, where all else would fail."""
    if isinstance(number, int):
        return None
    known: int | None = number.node.maybe_as_int()
    return known or None


def _first_places(graph: fx.Graph, mask: fx.Node, count: int) -> fx.Node:
    call, shape = graph.call_function, mask.meta["val"].shape
    length = int(mask.meta["val"].numel())
    places, _ = places_of(graph, call(aten.reshape.default, (mask, [length])), length)
    left = call(aten.slice.Tensor, (places, 0, 0, count))
    columns: list[fx.Node] = []
    for extent in reversed(shape):
        columns.insert(0, call(aten.remainder.Scalar, (left, int(extent))))
        left = call(aten.div.Tensor_mode, (left, int(extent)), {"rounding_mode": "floor"})
    return call(aten.stack.default, (columns, 1))
