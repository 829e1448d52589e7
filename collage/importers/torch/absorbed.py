"""Rows that data choose and that end in sums over what they belong to: the edges of a graph.

Graph networks drop some of the edges that they are given (loops), add others, and sum what comes
along them into their nodes. As many edges as there may be are computed, and those that are none are
added to a node behind the last. So results are right, and none of their extents depends on data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from collage.importers.torch.choosing import choosers_of
from collage.importers.torch.following import MOVED, Pieces, Rows, UnknownError, elementwise

aten = torch.ops.aten

_CHECKS = ("_assert_tensor_metadata.default", "_assert_scalar.default")

_SUMS = {
    "scatter.src": (1, 2, (3,)),
    "scatter.value": (1, 2, ()),
    "scatter_add.default": (1, 2, (3,)),
    "scatter_reduce.two": (1, 2, (3,)),
    "index_add.default": (1, 2, (3,)),
    "index_put.default": (None, 1, (2,)),
}
"""Where each has its axis, its indices, and what else has rows; what is summed into comes first."""

_OF_ALL = {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), 0.0),
    **dict.fromkeys(("max.default", "amax.default"), -math.inf),
    **dict.fromkeys(("min.default", "amin.default"), math.inf),
}
"""What becomes of all rows, and what changes nothing of it."""


_SIZES = {
    **dict.fromkeys(("view.default", "reshape.default", "_unsafe_view.default"), 1),
    **dict.fromkeys(("full.default", "empty.memory_format"), 0),
    "expand.default": 1,
    "chosen_rows.default": 1,
}
"""Which argument is only how large the result is."""


def with_absorbed_rows(
    program: torch.export.ExportedProgram, again: Callable[[], torch.export.ExportedProgram]
) -> torch.export.ExportedProgram | None:
    """A program of which nothing that is given depends on how many rows were chosen.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Already in few kinds of operators; left as it is where None is given.
    again : callable
        Gives it with room for one more row everywhere: what differs was computed with how many
        rows there are.

    Returns
    -------
    torch.export.ExportedProgram or None
        None where nothing chooses rows, or they go anywhere but into sums.
    """
    if not choosers_of(program):
        return None
    graph = program.graph
    before = [(node.target, node.args, node.kwargs) for node in graph.nodes]
    try:
        sums = _Following(graph).sums()
        _require_same(before, again().graph)
    except UnknownError:
        graph.eliminate_dead_code()
        return None
    for node, rows in sums:
        (_leave_out if node.target.__name__ in _OF_ALL else _absorb)(graph, node, rows)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    # Traced once more, so that every node has its type.
    return program.run_decompositions({})


def _require_same(before: list[tuple[Any, Any, Any]], again: fx.Graph) -> None:
    """See that nothing but sizes follows from how many rows there may be."""
    others = list(again.nodes)
    if len(others) != len(before):
        raise UnknownError
    for (target, args, kwargs), other in zip(before, others, strict=True):
        name = getattr(target, "__name__", str(target))
        if name != getattr(other.target, "__name__", str(other.target)):
            raise UnknownError
        size = _SIZES.get(name)
        given, wanted = (
            [one for place, one in enumerate(each) if place != size] for each in (args, other.args)
        )
        if not _is_same([given, dict(kwargs)], [wanted, dict(other.kwargs)]):
            raise UnknownError


def _is_same(one: Any, other: Any) -> bool:
    """Whether arguments are, but for what computes them."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, fx.Node):
        return isinstance(other, fx.Node)
    return type(one) is type(other) and bool(one == other)


class _Following:
    """Follows rows from where they are chosen to where they are added up."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self.rows: dict[fx.Node, Rows] = {}

    def sums(self) -> list[tuple[fx.Node, Rows]]:
        """Where all of them end."""
        found = []
        for node in list(self._graph.nodes):
            if getattr(node.target, "__name__", "") == "chosen_rows.default":
                self._begin(node, self._among_rows(node))
                continue
            if not any(one in self.rows for one in node.all_input_nodes) or node in self.rows:
                continue
            name = getattr(node.target, "__name__", "")
            if name in _OF_ALL and self._takes_all(node):
                found.append((node, self.rows[node.args[0]]))
            elif name in _SUMS:
                found.append((node, self._summed(node, *_SUMS[name])))
            elif name not in _CHECKS:
                self.rows[node] = self._moved(node, name)
        return found

    def _begin(self, node: fx.Node, among: Pieces) -> None:
        """The first of its results are rows; nobody else may have asked how many there are."""
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            raise UnknownError
        for taken in list(node.users):
            with self._graph.inserting_before(taken):
                count = self._graph.call_function(operator.getitem, (node, 1))
                places = self._graph.call_function(
                    aten.arange.default, (int(node.meta["val"][0].shape[0]),)
                )
                valid = self._graph.call_function(aten.lt.Tensor, (places, count))
            self.rows[taken] = Rows(0, ((valid, int(node.meta["val"][0].shape[0])),), among)

    def _among_rows(self, node: fx.Node) -> Pieces:
        """Of rows that were chosen before, those that are none are not chosen again."""
        mask = node.args[0]
        rows = self.rows.get(mask)
        if rows is None:
            return ()
        shape = [1] * mask.meta["val"].dim()
        shape[rows.axis] = -1
        with self._graph.inserting_before(node):
            valid = self._graph.call_function(aten.view.default, (_joined(node, rows), shape))
            both = self._graph.call_function(aten.logical_and.default, (mask, valid))
        both.meta["val"] = mask.meta["val"]
        node.args = (both, *node.args[1:])
        return rows.valid if len(shape) == 1 else ()

    def _takes_all(self, node: fx.Node) -> bool:
        """Whether the axis of rows is gone behind it; of whole numbers that is not known."""
        x, axes = node.args[0], node.args[1] if len(node.args) > 1 else []
        value = x.meta["val"]
        along = [int(one) % value.dim() for one in axes] or range(value.dim())
        return value.is_floating_point() and self.rows[x].axis in along

    def _moved(self, node: fx.Node, name: str) -> Rows:
        follow = MOVED.get(name)
        if follow is None and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            follow = elementwise
        if follow is None:
            raise UnknownError
        rows = follow(self.rows, node)
        value, length = node.meta["val"], sum(n for _, n in rows.valid)
        if any(
            one.shape[rows.axis] != length
            for one in (value if isinstance(value, list | tuple) else [value])
        ):
            raise UnknownError
        return rows

    def _summed(self, node: fx.Node, axis: int | None, index: int, others: Sequence[int]) -> Rows:
        """Rows of the indices lie along the axis that is summed into, and so do those of values."""
        target, places = node.args[0], node.args[index]
        where = 0
        if axis is None:
            # Of several axes one is indexed.
            given = [(i, one) for i, one in enumerate(places) if one is not None]
            if len(given) != 1:
                raise UnknownError
            where, places = given[0]
        rows = self.rows.get(places)
        if rows is None or target in self.rows:
            raise UnknownError
        flat = places.meta["val"].dim() == 1
        if axis is not None:
            where = int(node.args[axis]) % max(target.meta["val"].dim(), 1)
        if rows.axis != (0 if flat else where) or (axis is None and not flat):
            raise UnknownError
        for one in (node.args[other] for other in others):
            theirs = self.rows.get(one) if isinstance(one, fx.Node) else None
            if theirs is not None and (theirs.axis, theirs.valid) != (where, rows.valid):
                raise UnknownError
        return Rows(where, rows.valid)


def _joined(before: fx.Node, rows: Rows) -> fx.Node:
    """A vector that says which rows are; the graph inserts before the node."""
    call = before.graph.call_function
    parts = [
        valid if valid is not None else call(aten.full.default, ([n], True))
        for valid, n in rows.valid
    ]
    return parts[0] if len(parts) == 1 else call(aten.cat.default, (parts,))


def _leave_out(graph: fx.Graph, node: fx.Node, rows: Rows) -> None:
    """Let rows that are none be what changes nothing."""
    x = node.args[0]
    shape = [1] * x.meta["val"].dim()
    shape[rows.axis] = -1
    with graph.inserting_before(node):
        valid = graph.call_function(aten.view.default, (_joined(node, rows), shape))
        nothing = graph.call_function(
            aten.full.default,
            ([], _OF_ALL[node.target.__name__]),
            {"dtype": x.meta["val"].dtype},
        )
        kept = graph.call_function(aten.where.self, (valid, x, nothing))
    node.args = (kept, *node.args[1:])


def _absorb(graph: fx.Graph, node: fx.Node, rows: Rows) -> None:
    """Let it sum into one more than there are, and rows that are none into that one."""
    axis, (target, *rest) = rows.axis, node.args
    extent = int(target.meta["val"].shape[axis])
    call = graph.call_function
    with graph.inserting_before(node):
        valid = _joined(node, rows)
        at = _SUMS[node.target.__name__][1] - 1
        indexed = node.target is aten.index_put.default
        places = rest[at][axis] if indexed else rest[at]
        shape = [1] * places.meta["val"].dim()
        shape[axis if len(shape) > 1 else 0] = -1
        valid = call(aten.view.default, (valid, shape))
        behind = call(aten.full.default, ([1] * len(shape), extent), {"dtype": torch.int64})
        redirected = call(aten.where.self, (valid, places, behind))
        first = call(aten.slice.Tensor, (target, axis, 0, 1))
        wide = call(aten.cat.default, ([target, first], axis))
        rest[at] = (
            [redirected if one is places else one for one in rest[at]] if indexed else redirected
        )
        summed = call(node.target, (wide, *rest), dict(node.kwargs))
        result = call(aten.slice.Tensor, (summed, axis, 0, extent))
        result.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(result)
    graph.erase_node(node)
