"""Operators that look at several rows, of which only some are meant: what they are given instead.

Rows that are none come last in what is sorted, and are what changes nothing of sums and extremes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx

from collage.importers.torch.following import MOVED
from collage.importers.torch.meant import Pieces, Rows, UnknownError, joined
from collage.importers.torch.places import places_of

aten = torch.ops.aten


class Following(Protocol):
    """What is known of rows, and what is to be done about them."""

    graph: fx.Graph
    rows: dict[fx.Node, Rows]
    counts: dict[fx.Node, fx.Node]
    changes: list[Callable[[], None]]
    merged: dict[Pieces, tuple[Pieces, int]]

    def first(self, count: fx.Node, length: int, among: Pieces = (), axis: int = 0) -> Rows:
        """As many of the first rows as a vector of one element says.

        Parameters
        ----------
        count : torch.fx.Node
            Says it.
        length : int
            How many there may be.
        among, axis
            See :class:`Rows`.

        Returns
        -------
        Rows
            Of one piece.
        """

    def count_of(self, rows: Rows) -> fx.Node:
        """How many rows are, a vector of one element."""


def _named(node: fx.Node) -> dict[str, Any]:
    """A node's arguments by name, defaults filled in."""
    given: dict[str, Any] = dict(node.kwargs)
    for place, argument in enumerate(node.target._schema.arguments):
        if place < len(node.args):
            given[argument.name] = node.args[place]
        elif argument.has_default_value():
            given.setdefault(argument.name, argument.default_value)
    return given


def _along(following: Following, node: fx.Node) -> Rows | None:
    """The rows of a first operand that an operator goes along; None where it goes along others."""
    x = node.args[0]
    rows, rank = following.rows.get(x), x.meta["val"].dim()
    given = _named(node)
    axes = given.get("dim", given.get("dims"))
    axes = [axes] if isinstance(axes, int) else axes
    if rows is None or (axes and rows.axis not in {int(one) % rank for one in axes}):
        return None
    return rows


def _fill(following: Following, node: fx.Node, rows: Rows, value: float, operand: int = 0) -> None:
    """Let rows of an operand that are none hold a value."""

    def change() -> None:
        x, graph = node.args[operand], following.graph
        kind = x.meta["val"].dtype
        shape = [1] * x.meta["val"].dim()
        shape[rows.axis] = -1
        with graph.inserting_before(node):
            valid = graph.call_function(aten.view.default, (joined(graph, rows), shape))
            nothing = graph.call_function(aten.full.default, ([], value), {"dtype": kind})
            kept = graph.call_function(aten.where.self, (valid, x, nothing))
        kept.meta["val"] = x.meta["val"]
        node.args = (*node.args[:operand], kept, *node.args[operand + 1 :])

    following.changes.append(change)


def _limit(kind: torch.dtype, *, lowest: bool) -> float:
    """What is no more, or no less, than any number of a type."""
    if kind.is_floating_point:
        return -math.inf if lowest else math.inf
    if kind == torch.bool:
        return float(not lowest)
    limits = torch.iinfo(kind)
    return int(limits.min if lowest else limits.max)


def _nothing(node: fx.Node) -> float:
    """What changes nothing of what a reduction gives."""
    name = node.target.__name__.partition(".")[0]
    if name in ("amax", "max", "argmax"):
        return _limit(node.args[0].meta["val"].dtype, lowest=True)
    if name in ("amin", "min", "argmin"):
        return _limit(node.args[0].meta["val"].dtype, lowest=False)
    return 1 if name in ("prod", "all") else 0


def _reduced(following: Following, node: fx.Node) -> Any:
    rows = _along(following, node)
    if rows is None:
        return NotImplemented
    _fill(following, node, rows, _nothing(node))
    return None


def _mean(following: Following, node: fx.Node) -> Any:
    rows = _along(following, node)
    if rows is None:
        return NotImplemented
    _fill(following, node, rows, 0)
    total = sum(n for _, n in rows.valid)

    def change() -> None:
        # As the mean of all has it, by another number.
        graph, call = following.graph, following.graph.call_function
        with graph.inserting_before(node.next):
            sums = call(aten.mul.Tensor, (node, float(total)))
            many = call(aten.view.default, (following.count_of(rows), []))
            found = call(aten.div.Tensor, (sums, many))
            found = call(aten._to_copy.default, (found,), {"dtype": node.meta["val"].dtype})
        found.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(found, delete_user_cb=lambda user: user is not sums)

    following.changes.append(change)
    return None


def _ordered(following: Following, node: fx.Node) -> Any:
    """Sorted, or the best so many: what is none comes last."""
    given, rows = _named(node), _along(following, node)
    if rows is None:
        return following.rows[node.args[0]]
    best_first = given.get("largest", given.get("descending", False))
    _fill(following, node, rows, _limit(node.args[0].meta["val"].dtype, lowest=bool(best_first)))
    length = sum(n for _, n in rows.valid)
    count, most = following.count_of(rows), int(given.get("k", length))
    if most < length:
        count = following.graph.call_function(aten.clamp.default, (count, None, most))
    return following.first(count, most, rows.valid, rows.axis)


def _normalized(following: Following, node: fx.Node) -> Any:
    """Along rows, of which those that are none have no share."""
    rows = _along(following, node)
    if rows is None:
        return NotImplemented
    _fill(following, node, rows, -math.inf if "softmax" in node.target.__name__ else 0)
    return Rows(rows.axis, rows.valid)


def _unhidden(following: Following, node: fx.Node) -> Any:
    """Boxes hide those behind them; what is none comes last."""
    rows = following.rows[node.args[0]]
    if rows.axis or len(rows.valid) != 1 or rows.valid[0][0] not in following.counts:
        raise UnknownError
    return Rows(0, rows.valid)


def _compacted(following: Following, node: fx.Node, rows: Rows) -> fx.Node:
    """Let the rows of a first operand that are come first; gives how many."""
    (valid, _), *more = rows.valid
    if not more and valid in following.counts:
        return following.counts[valid]
    length = sum(n for _, n in rows.valid)
    places, count = places_of(following.graph, joined(following.graph, rows), length)

    def change() -> None:
        x, graph = node.args[0], following.graph
        with graph.inserting_before(node):
            taken = graph.call_function(aten.index_select.default, (x, rows.axis, places))
        taken.meta["val"] = x.meta["val"]
        node.args = (taken, *node.args[1:])

    following.changes.append(change)
    return count


def _cut(following: Following, node: fx.Node) -> Any:
    """The first so many of the rows that are."""
    given, rows = _named(node), _along(following, node)
    length = node.args[0].meta["val"].shape[given["dim"]]
    if rows is None or (not given["start"] and given["end"] is None):
        return NotImplemented
    end = given["end"]
    if given["start"] or given["step"] != 1 or end is None or end < 0:
        raise UnknownError
    if end >= length:
        return rows
    count = _compacted(following, node, rows)
    count = following.graph.call_function(aten.clamp.default, (count, None, end))
    return following.first(count, end, rows.among, rows.axis)


def _one_row(following: Following, node: fx.Node) -> Any:
    """One of the first; where there is none, the module fails."""
    rows = _along(following, node)
    if rows is None:
        return NotImplemented
    if node.args[2] < 0:
        raise UnknownError
    _compacted(following, node, rows)
    return None


def _viewed(following: Following, node: fx.Node) -> Any:
    """Rows and elements of each as one axis, and back."""
    x = node.args[0]
    rows = following.rows.get(x)
    if rows is None:
        raise UnknownError
    try:
        return MOVED["view.default"](following.rows, node)
    except UnknownError:
        pass
    before, after = list(x.meta["val"].shape), list(node.meta["val"].shape)
    lead, extent = math.prod(before[: rows.axis]), before[rows.axis]
    for axis, length in enumerate(after):
        if math.prod(after[:axis]) != lead:
            continue
        known = following.merged.get(rows.valid)
        if known is not None and length * known[1] == extent:
            return Rows(axis, known[0])
        sizes = [math.prod(before[rows.axis + 1 : end]) for end in range(rows.axis + 2, 9)]
        each = length // max(extent, 1)
        if each > 1 and length == extent * each and each in sizes:
            return _spread(following, rows, each, axis)
    raise UnknownError


def _spread(following: Following, rows: Rows, each: int, axis: int) -> Rows:
    for merged, source in following.merged.items():
        if source == (rows.valid, each):
            return Rows(axis, merged)
    call, length = following.graph.call_function, sum(n for _, n in rows.valid)
    valid, *more = (one for one, _ in rows.valid)
    if not more and valid in following.counts:
        count = call(aten.mul.Tensor, (following.counts[valid], each))
        found = following.first(count, length * each, (), axis)
    else:
        column = call(aten.view.default, (joined(following.graph, rows), [length, 1]))
        wide = call(aten.expand.default, (column, [length, each]))
        flat = call(aten.reshape.default, (wide, [length * each]))
        found = Rows(axis, ((flat, length * each),))
    following.merged[found.valid] = rows.valid, each
    return found


def _contracted(following: Following, node: fx.Node) -> Any:
    """A product that sums over rows."""
    one, two = (following.rows.get(x) for x in node.args[:2])
    rank = node.args[0].meta["val"].dim()
    if one is None or one.axis != rank - 1:
        return NotImplemented
    if two is None or two.axis != rank - 2 or one.valid != two.valid:
        raise UnknownError
    _fill(following, node, one, 0, 0)
    _fill(following, node, two, 0, 1)
    return None


def _split(following: Following, node: fx.Node) -> Any:
    rows = _along(following, node)
    if rows is None:
        return NotImplemented
    if [n for _, n in rows.valid] != list(node.args[1]) or len(node.args[1]) != 1:
        raise UnknownError
    return rows


MIXED: dict[str, Callable[[Following, fx.Node], Any]] = {
    **dict.fromkeys(
        ("sum.default", "sum.dim_IntList", "max.default", "amax.default", "min.default",
         "amin.default", "any.default", "any.dim", "any.dims", "all.default", "all.dim",
         "all.dims", "prod.default", "prod.dim_int", "max.dim", "min.dim", "argmax.default",
         "argmin.default"), _reduced),
    **dict.fromkeys(("mean.default", "mean.dim"), _mean),
    **dict.fromkeys(("sort.default", "sort.stable", "argsort.default", "argsort.stable",
                     "topk.default"), _ordered),
    **dict.fromkeys(("_softmax.default", "softmax.int", "cumsum.default", "_log_softmax.default",
                     "log_softmax.int"), _normalized),
    "unhidden.default": _unhidden,
    "slice.Tensor": _cut,
    "select.int": _one_row,
    **dict.fromkeys(("view.default", "reshape.default", "_unsafe_view.default"), _viewed),
    **dict.fromkeys(("mm.default", "bmm.default"), _contracted),
    "split_with_sizes.default": _split,
}  # fmt: skip
"""By the name that the translator has for an operator: the rows of its result, None for none, and
``NotImplemented`` where it goes along other axes."""
