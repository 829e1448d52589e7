"""What is written where a mask holds, a value for each place in turn or one for all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.nodes import label
from collage.importers.torch.operators.arguments import Importer, arguments, shape_of


def put_where(
    importer: Importer,
    node: fx.Node,
    x: relax.Expr,
    indices: Sequence[Any],
    values: relax.Expr,
    accumulate: bool,
) -> relax.Expr:
    """``x[:, mask] = values``, with one value for all places or as many as there are places.

    Parameters
    ----------
    importer : Importer
        Takes what is computed.
    node : fx.Node
        The write, for the warning that it takes as many as are given.
    x, values : relax.Expr
        What is written into, and what.
    indices : sequence
        A mask, and None for each axis before it.
    accumulate : bool
        Whether values are added.

    Returns
    -------
    relax.Expr
        In the shape of ``x``.
    """
    (mask,) = [index for index in indices if index is not None]
    before = next(i for i, index in enumerate(indices) if index is not None)
    shape, masked, given = shape_of(x), shape_of(mask), shape_of(values)
    front, tail = shape[:before], shape[before + len(masked) :]
    wide = importer.emit(op.reshape(mask, [1] * before + masked + [1] * len(tail)))
    if math.prod(given[: len(given) - len(tail)]) == 1:
        found = importer.emit(op.reshape(values, given[len(given) - len(tail) :] if tail else []))
    else:
        count = given[-len(tail) - 1]
        if count > 1:
            warnings.warn(
                f"{label(node)} writes {count} values where a mask holds; where it holds more or "
                "less often, the module fails, and what is compiled does not",
                stacklevel=2,
            )
        each = importer.emit(op.broadcast_to(values, [*front, count, *tail]))
        found = importer.emit(op.take(each, _places(importer, mask, count), before))
        found = importer.emit(op.reshape(found, shape))
    if accumulate:
        found = importer.emit(op.add(x, found))
    return importer.emit(op.where(wide, importer.emit(op.broadcast_to(found, shape)), x))


def scattered_where(importer: Importer, node: fx.Node) -> relax.Expr:
    """The n-th place of a mask gets the n-th value of the source.

    Parameters
    ----------
    importer : Importer
        Takes what is computed.
    node : fx.Node
        Of ``masked_scatter``.

    Returns
    -------
    relax.Expr
        In the shape that ``x`` and the mask have in common.
    """
    x, mask, source = arguments(importer, node, "self", "mask", "source")
    common = list(torch.broadcast_shapes(tuple(shape_of(x)), tuple(shape_of(mask))))
    x, wide = (importer.emit(op.broadcast_to(each, common)) for each in (x, mask))
    place = _places(importer, wide, math.prod(shape_of(source)))
    taken = importer.emit(op.take(importer.emit(op.reshape(source, [-1])), place, 0))
    return importer.emit(op.where(wide, importer.emit(op.reshape(taken, shape_of(x))), x))


def _places(importer: Importer, mask: relax.Expr, count: int) -> relax.Expr:
    """For each element of a mask, how many before it hold: no more than there are values for."""
    flat = importer.emit(op.astype(importer.emit(op.reshape(mask, [-1])), "int64"))
    counted = importer.emit(op.cumsum(flat, axis=0))
    place = importer.emit(op.subtract(counted, relax.const(1, "int64")))
    last = relax.const(count - 1, "int64")
    return importer.emit(op.minimum(op.maximum(place, relax.const(0, "int64")), last))
