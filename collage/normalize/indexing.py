"""Reads and writes at places that data choose, in the forms that TVM's kernels get right."""

from __future__ import annotations

import numpy as np
from tvm import relax

from collage import rewrite as rw
from collage.backends.relax.static_shape import static_shape
from collage.rewrite import Rules, Scope


def _safe_take(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Places outside of a table are its nearest ones: read as they are, they would be anybody's."""
    if str(call.attrs.mode) != "fast":
        return None
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return relax.op.take(call.args[0], call.args[1], axis=axis, mode="clip")


def _partial_scatter(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A scatter into a part of the other axes, as one that names every axis's place.

    TVM 0.27 walks the axes before the scattered one as if they were one axis of the indices', and
    those behind it too: right where no more than the first of each is shorter than the data's.
    """
    x, indices, updates = call.args
    if not all(map(rw.is_tensor, call.args)):
        return None
    shape, reached = static_shape(x), static_shape(indices)
    axis = int(call.attrs.axis) % len(shape)
    if all(reached[i] == shape[i] for i in range(len(shape)) if i not in (0, axis, axis + 1)):
        return None
    last = len(shape)
    whole = scope.emit(relax.op.astype(indices, "int64"))
    places = []
    for place, extent in enumerate(reached):
        if place == axis:
            behind = scope.emit(relax.op.add(whole, relax.const(shape[axis], "int64")))
            below = scope.emit(relax.op.less(whole, relax.const(0, "int64")))
            found = scope.emit(relax.op.where(below, behind, whole))
        else:
            counted = np.arange(extent, dtype="int64")
            counted = counted.reshape([-1 if i == place else 1 for i in range(last)])
            found = scope.emit(relax.op.broadcast_to(relax.const(counted, "int64"), reached))
        places.append(scope.emit(rw.reshape(found, (*reached, 1))))
    joined = scope.emit(relax.op.concat(places, axis=last))
    if static_shape(updates) != reached:
        starts = [0] * last
        updates = scope.emit(relax.op.strided_slice(updates, list(range(last)), starts, reached))
    return relax.op.scatter_nd(x, joined, updates, str(call.attrs.reduction))


RULES: Rules = {"take": (_safe_take,), "scatter_elements": (_partial_scatter,)}
