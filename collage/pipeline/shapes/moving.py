"""Operators that move elements: where the slices are in what comes out.

The rules are as those of :mod:`collage.pipeline.shapes.computing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm_ffi
from tvm import relax

from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.static_shape import static_shape
from collage.importers.choosing import CHOSEN_ROWS
from collage.pipeline.shapes.operands import Axes, Operands, UnprovenError, has_extent
from collage.rewrite import is_constant


def _made(call: Operands) -> int | None:
    """Of one value everywhere: the shape alone tells."""
    if any(map(has_extent, call.axes)):
        call.mixes()
    return _differing(call)


def _like(call: Operands) -> int | None:
    return call.only(0)


def _differing(call: Operands) -> int | None:
    one, two = static_shape(call.large), static_shape(call.small)
    differing = [axis for axis in range(len(one)) if one[axis] != two[axis]]
    if len(differing) > 1:
        call.mixes()
    return differing[0] if differing else None


def _broadcast(call: Operands) -> int | None:
    shape, rank = call.shape(), len(static_shape(call.large))
    axis = call.axis()
    found = _differing(call)
    if axis is not None:
        return axis - len(shape) + rank
    if found is not None and found - rank + len(shape) >= 0 and shape[found - rank] != 1:
        call.mixes()
    return found


def _transpose(call: Operands) -> int | None:
    axis, rank = call.only(), len(call.shape())
    if axis is None:
        return None
    order = call.large.attrs.axes
    order = range(rank)[::-1] if order is None else [int(a) % rank for a in order]
    return list(order).index(axis)


def _reshape(call: Operands) -> int | None:
    """Memory stays as it is, so a slice has to be as many elements as it was, one behind the other.

    The axis may take in those behind it, or give them back.
    """
    axis = call.axis()
    if axis is None:
        return None
    shape, extents = call.shape(), call.extents
    large, small = static_shape(call.large), static_shape(call.small)
    behind = math.prod(shape[axis:])
    fitting = [
        place
        for place in range(len(large))
        if large[place] * extents[1] == small[place] * extents[0]
        and math.prod(large[place:]) == behind
    ]
    return fitting[0] if len(fitting) == 1 else call.mixes()


def _concat(call: Operands) -> int | None:
    rank = len(static_shape(call.large))
    return call.along(call.parts(), int(call.large.attrs.axis or 0), rank)


def _stack(call: Operands) -> int | None:
    axis = call.parts()
    if axis is None:
        return None
    new = int(call.large.attrs.axis or 0) % len(static_shape(call.large))
    return axis + (new <= axis)


def _split(call: Operands) -> Axes:
    return (call.past(call.large.attrs.axis),) * len(call.large.ty.fields)


def _strided_slice(call: Operands) -> int | None:
    return call.past([int(value) for value in call.large.args[1].fields])


def _take(call: Operands) -> int | None:
    """Rows of a table, by indices of which each slice has its own; or the other way round."""
    table, indices = call.axis(0), call.axis(1)
    if table is None and indices is None:
        return None
    rank, taken = len(call.shape(0)), call.large.attrs.axis
    if taken is None:
        return indices if table is None else call.mixes()
    place = int(taken) % rank
    if table is None or table == place:
        if table is not None:
            _require_inside(call, call.small.args[1], table)
        return None if indices is None else place + indices
    if indices is not None:
        call.mixes()
    return table if table < place else table - 1 + len(call.shape(1))


def _index_tensor(call: Operands) -> int | None:
    """Elements of a table by indices for its first axes, which are aligned to the right."""
    table, indices = call.axis(0), call.small.args[1]
    if not isinstance(indices, relax.Tuple) or any(str(i.ty.dtype) == "bool" for i in indices):
        call.mixes()
    place = call.aligned(1)
    count, rank = len(indices), max(int(index.ty.ndim) for index in indices)
    if table is not None and table >= count:
        return table - count + rank if place is None else call.mixes()
    if table is not None:
        _require_inside(call, indices[table], table)
    return None if place is None else rank + place


def _require_inside(call: Operands, indices: relax.Expr, axis: int) -> None:
    """See that indices along the extent are known, and the same rows for either extent."""
    if not is_constant(indices):
        call.mixes()
    extent = static_shape(call.small.args[0])[axis]
    if not np.isin(constant_data(indices), np.arange(extent)).all():
        call.mixes()


def _pad(call: Operands) -> int | None:
    axis = call.only()
    if axis is not None:
        widths = [int(width) for width in call.large.attrs.pad_width]
        if any(widths[2 * axis : 2 * axis + 2]):
            call.mixes()
    return axis


def _gather(call: Operands) -> int | None:
    """The same place in table and indices, but for the axis along which is gathered."""
    one, two = call.axis(0), call.axis(1)
    if one != two or (one is not None and call.shape(0)[one] != call.shape(1)[one]):
        call.mixes()
    return call.along(one, int(call.large.attrs.axis), len(call.shape()))


def _gather_nd(call: Operands) -> int | None:
    """Parts of a table at places of which each slice has its own."""
    table, places = call.axis(0), call.axis(1)
    if table is not None or int(call.large.attrs.batch_dims):
        call.mixes()
    return call.along(places, -1, len(call.shape(1)))


def _program(call: Operands) -> Axes:
    """A tensor program: nothing is known of it, unless it is where the extent begins."""
    if any(map(has_extent, call.axes)):
        raise UnprovenError("of call_tir it is not known whether it mixes slices")
    if str(call.large.args[0].name_hint).startswith(CHOSEN_ROWS):
        return _differing(call)
    parts = call.large.ty
    return (None,) * len(parts.fields) if isinstance(parts, relax.TupleType) else None


def _of_a_shape(call: Operands) -> None:
    """A shape, or its numbers: they have to be the same, so it is of what has not the extent."""
    one, two = call.large.args[0].ty, call.small.args[0].ty
    if has_extent(call.axes) or not tvm_ffi.structural_equal(one, two):
        call.mixes()


RULES: dict[str, Callable[[Operands], Axes]] = {
    **dict.fromkeys(["full", "ones", "zeros"], _made),
    **dict.fromkeys(["full_like", "ones_like", "zeros_like"], _like),
    **dict.fromkeys(["reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims"], _reshape),
    **dict.fromkeys(["shape_of", "shape_to_tensor"], _of_a_shape),
    "permute_dims": _transpose,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "take": _take,
    "index_tensor": _index_tensor,
    "broadcast_to": _broadcast,
    "nn.pad": _pad,
    "gather_elements": _gather,
    "gather_nd": _gather_nd,
    "call_tir": _program,
}
"""By operator's name, without ``relax.``."""
