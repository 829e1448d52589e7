"""Sums and what is written at places, where some of the rows that go there are none.

One more place than there are takes those, and is cut off again.
"""

from __future__ import annotations

import torch
from torch import fx

from collage.importers.torch.meant import Known, Rows, UnknownError, joined, same_rows

aten = torch.ops.aten

SUMS: dict[str, tuple[int | None, int, tuple[int, ...]]] = {
    "scatter.src": (1, 2, (3,)),
    "scatter.value": (1, 2, ()),
    "scatter_add.default": (1, 2, (3,)),
    "scatter_reduce.two": (1, 2, (3,)),
    "index_add.default": (1, 2, (3,)),
    "index_put.default": (None, 1, (2,)),
}
"""Where each has its axis, its indices, and what else has rows; what is summed into comes first."""


def summed_rows(known: Known, node: fx.Node) -> Rows:
    """Rows of the indices lie along the axis that is summed into, and so do those of values.

    Parameters
    ----------
    known : mapping of fx.Node to Rows
        Of what is computed before.
    node : torch.fx.Node
        Of an operator in :data:`SUMS`.

    Returns
    -------
    Rows
        Of the indices, along the axis that is summed into.

    Raises
    ------
    UnknownError
        When they lie otherwise.
    """
    axis, index, others = SUMS[node.target.__name__]
    if axis is None:
        return _put_rows(known, node)
    target, places = node.args[0], node.args[index]
    where = int(node.args[axis]) % max(target.meta["val"].dim(), 1)
    rows = known.get(places)
    if rows is None:
        raise UnknownError
    flat = places.meta["val"].dim() == 1
    if (its := known.get(target)) is not None and (
        not flat or its.axis != where or its.valid != rows.among
    ):
        raise UnknownError
    if rows.axis != (0 if flat else where):
        raise UnknownError
    for one in (node.args[other] for other in others):
        theirs = known.get(one) if isinstance(one, fx.Node) else None
        if theirs is not None and (theirs.axis, theirs.valid) != (where, rows.valid):
            raise UnknownError
    return Rows(where, rows.valid)


def _put_rows(known: Known, node: fx.Node) -> Rows:
    """Rows of the indices, of which one is told what lies behind the last."""
    target, indices, values = node.args[:3]
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    first, kinds = given[0][0], [one.meta["val"] for _, one in given]
    its, rank = known.get(target), target.meta["val"].dim() - len(given) + 1
    if given[-1][0] - first != len(given) - 1 or not all(one in known for _, one in given):
        raise UnknownError
    if any(kind.dim() != 1 or kind.dtype == torch.bool for kind in kinds):
        raise UnknownError
    where = first if its is None else its.axis
    rows = same_rows([known[one] for _, one in given])
    if its is not None:
        index = dict(given).get(where)
        if index is None or its.valid != known[index].among:
            raise UnknownError
    theirs = known.get(values)
    if theirs is not None:
        at = theirs.axis + rank - values.meta["val"].dim()
        if (at, theirs.valid) != (first, rows.valid):
            raise UnknownError
    return Rows(where, rows.valid)


def absorb(graph: fx.Graph, node: fx.Node, rows: Rows) -> None:
    """Let it sum into one more than there are, and rows that are none into that one.

    Parameters
    ----------
    graph : torch.fx.Graph
        Changed in place.
    node : torch.fx.Node
        Is replaced.
    rows : Rows
        What :func:`summed_rows` gave.
    """
    axis, (target, *rest) = rows.axis, node.args
    extent = int(target.meta["val"].shape[axis])
    call = graph.call_function
    with graph.inserting_before(node):
        valid = joined(graph, rows)
        at = SUMS[node.target.__name__][1] - 1
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
