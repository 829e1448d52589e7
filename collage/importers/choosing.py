"""Rows of which the data say how many there are, of whichever format: the most that it may be.

The rest of what is computed has static shapes that way. Rows from the number on are zeros; who
gives a result to the user cuts them off, see :mod:`collage.pipeline.shapes.rows`.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from collage.backends.relax.static_shape import static_shape

CHOSEN_ROWS = "chosen_rows"
"""What the tensor programs are called that give them."""


def first_rows(
    builder: relax.BlockBuilder, rows: relax.Expr, count: relax.Expr, most: int, kept: int
) -> relax.Expr:
    """The first rows, and zeros for those that were not chosen.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes the tensor program.
    rows : relax.Expr
        Those that were chosen stand in front.
    count : relax.Expr
        How many that are, a vector of one element.
    most : int
        How many it may be.
    kept : int
        How many there are in the result, as many or more.

    Returns
    -------
    relax.Expr
        ``kept`` rows, in the dtype of those given.
    """

    def chosen(rows: te.Tensor, count: te.Tensor) -> te.Tensor:
        def element(*place: tirx.Var) -> tirx.Expr:
            last = tirx.min(place[0], most - 1)
            zero = tirx.const(0, rows.dtype)
            return tirx.if_then_else(place[0] < count[0], rows(last, *place[1:]), zero)

        return te.compute((kept, *rows.shape[1:]), element, CHOSEN_ROWS)

    return builder.emit_te(chosen, rows, count, primfunc_name_hint=CHOSEN_ROWS)


def places_of_truth(
    builder: relax.BlockBuilder, mask: relax.Expr, more: int
) -> tuple[list[relax.Expr], relax.Expr]:
    """Where a mask holds, in order.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes what is computed.
    mask : relax.Expr
        Truth values, one at least.
    more : int
        How many places more than there can be are made room for.

    Returns
    -------
    tuple of (list of relax.Expr, relax.Expr)
        The places along each axis, and how many there are, a vector of one element.
    """
    emit, shape = builder.emit, list(static_shape(mask)) or [1]
    most = math.prod(shape)
    x = emit(op.reshape(mask, [most]))
    places = relax.const(np.arange(most), "int64")
    keys = emit(op.sort(emit(op.where(x, places, relax.const(most, "int64")))))
    count = emit(op.sum(emit(op.astype(x, "int64")), [0], keepdims=True))
    # The others come behind.
    rest = first_rows(builder, keys, count, most, most + more)
    coordinates = []
    for extent in shape[::-1]:
        whole = relax.const(extent, "int64")
        coordinates.append(emit(op.floor_mod(rest, whole)))
        rest = emit(op.floor_divide(rest, whole))
    return coordinates[::-1], count
