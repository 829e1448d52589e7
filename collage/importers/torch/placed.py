"""How operators that take and write by places pass rows on of which only some are meant."""

from __future__ import annotations

import torch
from torch import fx

from collage.importers.torch.meant import (
    Follow,
    Known,
    Rows,
    UnknownError,
    axis_of,
    same_rows,
    value_of,
)


def _written_into(known: Known, node: fx.Node) -> Rows:
    """Something is written at places of another axis; one place is chosen, or several are."""
    rows, written = known.get(node.args[0]), node.args[1]
    axis = axis_of(node, node.args[2] if len(node.args) > 2 else 0)
    if rows is None or rows.axis == axis:
        raise UnknownError
    if written in known:
        its, fewer = known[written], value_of(written).dim() < value_of(node).dim()
        if (its.axis + (fewer and its.axis >= axis), its.valid) != (rows.axis, rows.valid):
            raise UnknownError
    return Rows(rows.axis, rows.valid)


def _put(known: Known, node: fx.Node) -> Rows:
    """``x[mask] = value``, by a mask of rows or within them, and ``x[:, places] = values``."""
    x, indices, values = node.args[:3]
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    first, together = given[0][0], given[-1][0] - given[0][0] == len(given) - 1
    if x not in known or not together:
        raise UnknownError
    rows, rank = known[x], value_of(x).dim()
    covered, taken = len(given), max(value_of(one).dim() for _, one in given)
    if value_of(given[0][1]).dtype == torch.bool:
        covered, taken = taken, 1
    of_indices = [known[one] for _, one in given if one in known]
    if first <= rows.axis < first + covered:
        # One value for all of them, or one for each along axes behind.
        if of_indices != [Rows(rows.axis - first, rows.valid)] or values in known:
            raise UnknownError
        return Rows(rows.axis, rows.valid)
    if of_indices:
        raise UnknownError
    more = taken - covered
    lying = rows.axis + more * (rows.axis > first)
    _require_aligned(known, values, Rows(lying - rank - more, rows.valid))
    return Rows(rows.axis, rows.valid)


def _require_aligned(known: Known, values: fx.Node, rows: Rows) -> None:
    """Rows of values that are broadcast lie along an axis, which is counted from behind."""
    rank = value_of(values).dim()
    if values in known:
        its = known[values]
        if (its.axis - rank, its.valid) != (rows.axis, rows.valid):
            raise UnknownError
    elif -rows.axis <= rank and value_of(values).shape[rows.axis] != 1:
        raise UnknownError


def _scattered(known: Known, node: fx.Node) -> Rows:
    """Within each row, by places of its own."""
    x, axis, index, values = node.args[:4]
    found = same_rows([known[one] for one in (x, index) if one in known])
    if not {x, index} <= known.keys() or axis_of(x, axis) == found.axis:
        raise UnknownError
    if isinstance(values, fx.Node) and value_of(values).dim():
        same_rows([found, known[values]] if values in known else [])
    return found


def _added(known: Known, node: fx.Node) -> Rows:
    """At the same places within each row."""
    x, axis, index, values = node.args[:4]
    found = same_rows([known[one] for one in (x, values) if one in known])
    if not {x, values} <= known.keys() or index in known or axis_of(x, axis) == found.axis:
        raise UnknownError
    return found


def _among_rows(known: Known, x: fx.Node, axis: int, index: fx.Node) -> Rows | None:
    """Rows of a tensor of which some are none, taken by the places of those that are."""
    if x not in known or index not in known:
        return None
    rows, places = known[x], known[index]
    flat = value_of(index).dim() == 1
    if not flat or rows.axis != axis or places.among != rows.valid:
        raise UnknownError
    # Places that are taken of places are places of the same rows.
    return Rows(axis, places.valid, rows.among)


def _selected(known: Known, node: fx.Node) -> Rows:
    """Rows that say which are taken of a tensor without any."""
    x, axis, index = node.args[:3]
    if (found := _among_rows(known, x, axis_of(x, axis), index)) is not None:
        return found
    if x in known:
        raise UnknownError
    return Rows(axis_of(x, axis), known[index].valid)


def _looked_up(known: Known, node: fx.Node) -> Rows:
    if node.args[0] in known:
        raise UnknownError
    return known[node.args[1]]


def _gathered(known: Known, node: fx.Node) -> Rows:
    x, axis, index = node.args[:3]
    if x in known and index in known:
        along, rows, places = axis_of(x, axis), known[x], known[index]
        if along == rows.axis == places.axis and places.among == rows.valid:
            return Rows(along, places.valid)
        if along != rows.axis and (rows.axis, rows.valid) == (places.axis, places.valid):
            return Rows(rows.axis, rows.valid)
    if x in known or index not in known:
        raise UnknownError
    return known[index]


def _indexed(known: Known, node: fx.Node) -> Rows:
    x, indices = node.args[:2]
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    first, rank = given[0][0], max(value_of(one).dim() for _, one in given)
    together = given[-1][0] - first == len(given) - 1
    if not together:
        raise UnknownError
    if len(given) == 1 and (found := _among_rows(known, x, first, given[0][1])) is not None:
        return found
    if x not in known:
        rows = _together([one for _, one in given], known, rank)
        return Rows(first + rows.axis, rows.valid)
    rows = known[x]
    at = dict(given).get(rows.axis)
    if at in known and rank == 1:
        if known[at].among != rows.valid:
            raise UnknownError
        return Rows(first, _together([one for _, one in given], known, rank).valid)
    if any(one in known for _, one in given) or first <= rows.axis <= given[-1][0]:
        raise UnknownError
    return Rows(rows.axis + (rank - len(given)) * (rows.axis > first), rows.valid)


def _together(nodes: list[fx.Node], known: Known, rank: int) -> Rows:
    """The rows of indices that are broadcast together."""
    return same_rows(
        [
            Rows(known[one].axis + rank - value_of(one).dim(), known[one].valid)
            for one in nodes
            if one in known
        ]
    )


PLACED: dict[str, Follow] = {
    "select_scatter.default": _written_into,
    "slice_scatter.default": _written_into,
    "index_put.default": _put,
    **dict.fromkeys(
        ("scatter.src", "scatter.value", "scatter_add.default", "scatter_reduce.two"), _scattered
    ),
    "index_add.default": _added,
    "index_select.default": _selected,
    "embedding.default": _looked_up,
    "gather.default": _gathered,
    "index.Tensor": _indexed,
}
"""By the name that the translator has for an operator."""
