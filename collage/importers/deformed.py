"""Deformable convolutions, of whichever format: what each tap reads is gathered, then one product.

References
----------
Dai et al., "Deformable Convolutional Networks", 2017 (arXiv 1703.06211); with a mask, Zhu et al.,
"Deformable ConvNets v2", 2018 (arXiv 1811.11168).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.backends.relax.static_shape import static_shape

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class DeformedWindow:
    """How the window moves, before it is deformed.

    Attributes
    ----------
    strides, dilations : tuple of int
        Along rows and columns.
    pads : tuple of int
        Before them; how many there are behind follows from the offsets' shape.
    groups, offset_groups : int
        Of channels: with weights of their own, and with offsets of their own.
    """

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    groups: int
    offset_groups: int


def pair(rows: int, columns: int) -> tuple[int, int]:
    """Numbers for the two axes, as plain ones.

    Parameters
    ----------
    rows, columns : int
        Along each axis, of whatever type a model's attributes have.

    Returns
    -------
    tuple[int, int]
        Rows first.
    """
    return int(rows), int(columns)


def deformed_convolution(
    emit: Emit,
    x: relax.Expr,
    weight: relax.Expr,
    offsets: relax.Expr,
    mask: relax.Expr | None,
    window: DeformedWindow,
) -> relax.Expr:
    """A convolution whose every tap reads beside its place, as offsets say, between four elements.

    Parameters
    ----------
    emit : callable
        Binds an expression.
    x : relax.Expr
        (batch, channels, rows, columns).
    weight : relax.Expr
        (results, channels of a group, rows, columns).
    offsets : relax.Expr
        (batch, offset groups * taps * 2, rows, columns) of the result: down, then to the right.
    mask : relax.Expr or None
        (batch, offset groups * taps, rows, columns): what each tap counts.
    window : DeformedWindow
        Where the taps are without offsets.

    Returns
    -------
    relax.Expr
        (batch, results, rows, columns), in the type of ``x``.
    """
    batch, channels, *extents = static_shape(x)
    results, _, *kernel = static_shape(weight)
    taps, parts, groups = math.prod(kernel), window.offset_groups, window.groups
    *_, height, width = static_shape(offsets)
    dtype = str(x.ty.dtype)
    given = emit(op.reshape(offsets, [batch, parts, taps, 2, height * width]))
    along = []
    for axis in range(2):
        moved = emit(op.strided_slice(given, [3], [axis], [axis + 1]))
        moved = emit(op.reshape(moved, [batch, parts, taps * height * width]))
        if dtype != "float32":
            moved = emit(op.astype(moved, "float32"))
        place = emit(op.add(moved, relax.const(_begins(window, kernel, (height, width), axis))))
        # Everything that far outside is zero, and whole numbers stay small.
        along.append(emit(op.clip(place, -2.0, extents[axis] + 1.0)))
    flat = emit(op.reshape(x, [batch, parts, channels // parts, math.prod(extents)]))
    columns = _between(emit, flat, along, extents)
    if mask is not None:
        counted = emit(op.reshape(mask, [batch, parts, 1, taps * height * width]))
        columns = emit(op.multiply(columns, counted))
    depth = channels // groups * taps
    columns = emit(op.reshape(columns, [batch, groups, depth, height * width]))
    rows = emit(op.reshape(weight, [groups, results // groups, depth]))
    found = emit(op.matmul(rows, columns, out_dtype=dtype))
    return op.reshape(found, [batch, results, height, width])


def _begins(
    window: DeformedWindow, kernel: list[int], size: tuple[int, int], axis: int
) -> np.ndarray:
    """Where each tap of each result reads without offsets, along an axis: one row of all."""
    taps = np.arange(kernel[axis]) * window.dilations[axis]
    steps = np.arange(size[axis]) * window.strides[axis] - window.pads[axis]
    views = ((-1, 1, 1, 1), (1, 1, -1, 1)) if axis == 0 else ((1, -1, 1, 1), (1, 1, 1, -1))
    places = taps.reshape(views[0]) + steps.reshape(views[1])
    return np.broadcast_to(places, (*kernel, *size)).reshape(1, 1, -1).astype("float32")


def _between(
    emit: Emit, flat: relax.Expr, along: list[relax.Expr], extents: list[int]
) -> relax.Expr:
    """What planes hold at places between their elements; nothing around them.

    Of (batch, groups, channels, elements) and places (batch, groups, places).
    """
    batch, parts, depth, _ = static_shape(flat)
    count = static_shape(along[0])[-1]
    dtype = str(flat.ty.dtype)
    below = [emit(op.floor(place)) for place in along]
    shares = [emit(op.subtract(place, low)) for place, low in zip(along, below, strict=True)]
    total: relax.Expr | None = None
    for corner in itertools.product((0, 1), repeat=2):
        number: relax.Expr | None = None
        weight: relax.Expr | None = None
        for axis, step in enumerate(corner):
            extent = extents[axis]
            place = emit(op.add(below[axis], relax.const(float(step), "float32")))
            kept = emit(op.clip(place, 0.0, extent - 1.0))
            share = shares[axis]
            if not step:
                share = emit(op.subtract(relax.const(1.0, "float32"), share))
            inside = emit(op.equal(kept, place))
            share = emit(op.where(inside, share, relax.const(0.0, "float32")))
            weight = share if weight is None else emit(op.multiply(weight, share))
            whole = emit(op.astype(kept, "int32"))
            if number is None:
                number = emit(op.multiply(whole, relax.const(extents[1], "int32")))
            else:
                number = emit(op.add(number, whole))
        assert number is not None and weight is not None
        spread = emit(op.reshape(number, [batch, parts, 1, count]))
        spread = emit(op.broadcast_to(spread, [batch, parts, depth, count]))
        taken = emit(op.gather_elements(flat, spread, 3))
        if dtype != "float32":
            weight = emit(op.astype(weight, dtype))
        part = emit(op.multiply(taken, emit(op.reshape(weight, [batch, parts, 1, count]))))
        total = part if total is None else emit(op.add(total, part))
    assert total is not None
    return total
