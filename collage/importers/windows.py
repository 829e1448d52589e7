"""Maxima of windows and where they were, of whichever format: elements are laid side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

Array = NDArray[Any]


def elements_of_windows(extents: Sequence[int], along: Sequence[Array]) -> Array:
    """Which elements of a plane lie in each window.

    Parameters
    ----------
    extents : sequence of int
        Of the plane, row-major.
    along : sequence of numpy.ndarray
        For each axis, a row of coordinates for each window along it; those outside of the plane
        stand for nothing.

    Returns
    -------
    numpy.ndarray
        (windows along each axis..., elements); the number of all elements for nothing.

    Examples
    --------
    >>> import numpy as np
    >>> elements_of_windows([3], [np.array([[-1, 0], [1, 2]])]).tolist()
    [[3, 0], [1, 2]]
    """
    rank = len(extents)
    number, inside = np.zeros(1, "int64"), np.ones(1, bool)
    for axis, places in enumerate(along):
        view = [1] * (2 * rank)
        view[axis], view[rank + axis] = places.shape
        places = places.reshape(view)
        number = number * extents[axis] + places
        inside = inside & (places >= 0) & (places < extents[axis])
    found: Array = np.where(inside, number, math.prod(extents))
    return found.reshape(*(len(places) for places in along), -1)


def maxima_with_places(
    emit: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    shape: Sequence[int],
    elements: Array,
    numbers: Array,
) -> tuple[relax.Expr, relax.Expr]:
    """The largest element of each window, and the number of the first that is as large.

    Parameters
    ----------
    emit : callable
        Binds an expression to a variable.
    x : relax.Expr
        (samples, channels, extents...).
    shape : sequence of int
        Of it.
    elements : numpy.ndarray
        As :func:`elements_of_windows` gives them.
    numbers : numpy.ndarray
        What each element of a plane is called, and one more for nothing.

    Returns
    -------
    maxima, places : relax.Expr
        Both (samples, channels, windows along each axis...).
    """
    kind, count = str(x.ty.dtype), math.prod(shape[2:])
    lowest: Any = -np.inf if "float" in kind else np.iinfo(kind).min
    flat = emit(op.reshape(x, [shape[0], shape[1], count]))
    nothing = relax.const(np.asarray(lowest).astype(kind), kind)
    flat = emit(op.concat([flat, emit(op.full([shape[0], shape[1], 1], nothing, kind))], 2))
    table = elements.reshape(-1, elements.shape[-1])
    wide = [shape[0], shape[1], *table.shape]
    taken = emit(op.take(flat, relax.const(table.reshape(-1).astype("int32"), "int32"), 2))
    taken = emit(op.reshape(taken, wide))
    which = emit(op.argmax(taken, 3, keepdims=True))
    named = numbers[table].astype("int64")[None, None]
    spread = emit(op.broadcast_to(relax.const(named, "int64"), wide))
    places = emit(op.gather_elements(spread, which, 3))
    result = [shape[0], shape[1], *elements.shape[:-1]]
    maxima = emit(op.reshape(emit(op.max(taken, [3])), result))
    return maxima, emit(op.reshape(places, result))
