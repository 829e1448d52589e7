"""Permutations and reshapes of values whose axes stand in another order."""

from __future__ import annotations

import math

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.passes.channels_last_orders import (
    PLANE_SWAPPED,
    Answer,
    Axes,
    Orders,
    channels_first,
    channels_last,
    identity,
    one,
)
from collage.rewrite import is_tensor, permutation


def permuted(orders: Orders, call: relax.Call) -> Answer | None:
    """A permutation of a value in another order is that value in yet another one: nothing to do.

    One that brings an image's channels first is not written either, until something asks for it
    so. Of three axes nobody knows whether they are that.

    Parameters
    ----------
    orders : Orders
        What is known of the operands.
    call : relax.Call
        Of ``permute_dims``.

    Returns
    -------
    Answer or None
        None where the permutation has to be computed.
    """
    x = call.args[0]
    wanted, order = permutation(call), orders.of(x)
    lazy = len(wanted) > 3 and wanted == channels_first(len(wanted))
    if order == identity(len(wanted)) and not lazy:
        return None
    result = tuple(wanted.index(axis) for axis in order)
    return one(orders.get(x, order), result)


def reshaped(orders: Orders, call: relax.Call) -> Answer | None:
    """Reshapes that regroup channels among themselves and places among themselves.

    Parameters
    ----------
    orders : Orders
        What is known of the operands.
    call : relax.Call
        Of ``reshape``.

    Returns
    -------
    Answer or None
        None where it mixes channels and places.
    """
    x = call.args[0]
    if not is_tensor(x) or not is_tensor(call):
        return None
    old, new, order = static_shape(x), static_shape(call), orders.of(x)
    if order == identity(len(old)) or len(old) < 3 or not new or new[0] != old[0]:
        return None
    if order == PLANE_SWAPPED:
        return _from_plane(orders, x, old, new)
    if order == channels_last(4) and len(new) == 4 and new[1] == 1 < old[1]:
        return _to_plane(orders, x, old, new)
    start = order[1]
    if start < 2:
        return None
    channels, places = math.prod(old[1:start]), math.prod(old[start:])
    grouped = (0, *range(start, len(old)), *range(1, start))
    if channels == 1 or places == 1:
        return one(relax.op.reshape(orders.get(x, grouped), relax.ShapeExpr(new)), ())
    for cut in range(2, len(new)):
        if math.prod(new[1:cut]) == channels and math.prod(new[cut:]) == places:
            shape = (new[0], *new[cut:], *new[1:cut])
            result = relax.op.reshape(orders.get(x, grouped), relax.ShapeExpr(shape))
            return one(result, (0, *range(cut, len(new)), *range(1, cut)))
    return _blocks_to_image(orders, x, old, new)


def _blocks_to_image(orders: Orders, x: relax.Expr, old: Axes, new: Axes) -> Answer | None:
    """Blocks of pixels, which lie among channels until now, go to their places.

    The last step of moving depth to space: one permutation goes to channels last at once.
    """
    groups, at = [], 0
    for extent in new:
        first = at
        while at < len(old) and (first == at or math.prod(old[first:at]) < extent):
            at += 1
        groups.append(tuple(range(first, at)))
    merged = [math.prod(old[axis] for axis in group) for group in groups]
    if len(new) != 4 or len(old) == len(new) or at != len(old) or merged != list(new):
        return None
    last = channels_last(len(new))
    order = tuple(axis for group in last for axis in groups[group])
    shape = [new[axis] for axis in last]
    return one(relax.op.reshape(orders.get(x, order), relax.ShapeExpr(shape)), last)


def _to_plane(orders: Orders, x: relax.Expr, old: Axes, new: Axes) -> Answer | None:
    """(N, C, H, W) to (N, 1, C, H * W), as LRN wants it."""
    if new != (old[0], 1, old[1], old[2] * old[3]):
        return None
    last = orders.get(x, channels_last(4))
    result = relax.op.reshape(last, relax.ShapeExpr((new[0], 1, new[3], new[2])))
    return one(result, PLANE_SWAPPED)


def _from_plane(orders: Orders, x: relax.Expr, old: Axes, new: Axes) -> Answer | None:
    """(N, 1, C, H * W) back to (N, C, H, W)."""
    if len(new) != 4 or old[1] != 1 or new[1] != old[2] or new[2] * new[3] != old[3]:
        return None
    plane = orders.get(x, PLANE_SWAPPED)
    result = relax.op.reshape(plane, relax.ShapeExpr((new[0], new[2], new[3], new[1])))
    return one(result, channels_last(4))
