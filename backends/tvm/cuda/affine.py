"""Look-ups at places that are known and regular: arithmetic in place of a table of them.

A sliding window, a pool's windows or every other row come as look-ups at constants. An index that
was loaded keeps a look-up apart from what moves its elements; one that is computed does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import default_legalization

_MOST_DIGITS = 4
"""Of each axis: more take more arithmetic than a look-up."""

_INJECTIVE = 2
"""``kInjective`` of ``relax::OpPatternKind``."""


@dataclass(frozen=True)
class Place:
    """Where along an axis something lies, as a sum over the axes of an index.

    Attributes
    ----------
    offset : int
        Of the first element.
    digits : tuple of tuple of (int, int, int)
        By axis: ``(below, extent, stride)`` each, for ``i // below % extent * stride``.
    """

    offset: int
    digits: tuple[tuple[tuple[int, int, int], ...], ...]

    def at(self, index: Sequence[Any]) -> Any:
        """The place of one element.

        Parameters
        ----------
        index : sequence of Expr
            As many as there are axes.

        Returns
        -------
        Expr
            Of int64.
        """
        place: Any = tirx.const(self.offset, "int64")
        for i, parts in zip(index, self.digits, strict=True):
            for below, extent, stride in parts:
                digit = tirx.floordiv(i, below) if below > 1 else i
                place = place + (tirx.floormod(digit, extent) if extent else digit) * stride
        return place


def place_of(indices: NDArray[Any]) -> Place | None:
    """The sum that gives an array of indices; None where it is no such sum.

    Parameters
    ----------
    indices : ndarray
        Whole numbers.

    Returns
    -------
    Place or None
        None too where it takes many digits.

    Examples
    --------
    >>> rows = np.add.outer(np.arange(3), 2 * np.arange(4))
    >>> place_of(rows)
    Place(offset=0, digits=(((1, 0, 1),), ((1, 0, 2),)))
    >>> place_of(rows.reshape(-1)).digits
    (((1, 4, 2), (4, 0, 1)),)
    >>> place_of(np.array([0, 1, 3])) is None
    True
    """
    if not indices.size:
        return None
    offset = int(indices.flat[0])
    rest, digits = indices - offset, []
    for axis in range(indices.ndim):
        line = rest[tuple(slice(None) if a == axis else 0 for a in range(indices.ndim))]
        found = _digits(line)
        if found is None:
            return None
        digits.append(found)
        rest = rest - line.reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
    return None if rest.any() else Place(offset, tuple(digits))


def _digits(line: NDArray[Any]) -> tuple[tuple[int, int, int], ...] | None:
    """Of places that begin with zero."""
    found, below = list[tuple[int, int, int]](), 1
    while len(line) > 1:
        steps = np.diff(line)
        stride = int(steps[0])
        ends = np.flatnonzero(steps != stride)
        extent = len(line) if not len(ends) else int(ends[0]) + 1
        if extent < 2 or len(line) % extent or len(found) == _MOST_DIGITS:
            return None
        rows = line.reshape(-1, extent)
        if (rows - rows[:, :1] != stride * np.arange(extent)).any():
            return None
        if stride:
            found.append((below, 0 if extent == len(line) else extent, stride))
        below, line = below * extent, rows[:, 0]
    return tuple(found)


def legalize_take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``take``, by arithmetic where its indices are known and regular.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.take``.

    Returns
    -------
    relax.Expr
        TVM's own look-up for other indices.
    """
    data, indices = call.args
    shape = tensor_shape(data)
    if not isinstance(indices, GenericConst) or call.attrs.axis is None or shape is None:
        return default_legalization(builder, call)
    axis = int(call.attrs.axis) % max(len(shape), 1)
    rank = len(indices.value.shape)
    given = _inside(indices, shape[axis], clipped=str(call.attrs.mode) == "clip")
    place = None if given is None else place_of(given)
    if given is None or place is None:
        return default_legalization(builder, call)
    found: Place = place

    def taken(x: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Expr) -> tirx.Expr:
            own = index[axis : axis + rank]
            return x(*index[:axis], found.at(own), *index[axis + rank :])

        return te.compute((*shape[:axis], *given.shape, *shape[axis + 1 :]), element, name="taken")

    return _moved(builder, taken, data)


def legalize_index(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``index_tensor``, by arithmetic where all of its indices are known and regular.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.index_tensor``.

    Returns
    -------
    relax.Expr
        TVM's own look-up for other indices.
    """
    data, indices = call.args
    shape = tensor_shape(data)
    fields = list(indices.fields) if isinstance(indices, relax.Tuple) else []
    if shape is None or not fields or not all(isinstance(f, GenericConst) for f in fields):
        return default_legalization(builder, call)
    given = [_inside(field, shape[axis], clipped=False) for axis, field in enumerate(fields)]
    known = [array for array in given if array is not None]
    if len(known) < len(fields):
        return default_legalization(builder, call)
    known = list(np.broadcast_arrays(*known))
    places = [place for array in known if (place := place_of(array)) is not None]
    if len(places) < len(fields):
        return default_legalization(builder, call)
    rank = known[0].ndim

    def taken(x: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Expr) -> tirx.Expr:
            return x(*(place.at(index[:rank]) for place in places), *index[rank:])

        return te.compute((*known[0].shape, *shape[len(places) :]), element, name="taken")

    return _moved(builder, taken, data)


def _inside(constant: GenericConst, extent: int, *, clipped: bool) -> NDArray[np.int64] | None:
    """Indices as numbers from zero on; None where one is outside."""
    array = np.asarray(constant.value.numpy())
    if array.dtype.kind not in "iu" or not array.size:
        return None
    whole = array.astype(np.int64)
    if clipped:
        return np.clip(whole, 0, extent - 1)
    whole = np.where(whole < 0, whole + extent, whole)
    return whole if whole.min() >= 0 and whole.max() < extent else None


def _moved(builder: relax.BlockBuilder, compute: Any, data: relax.Expr) -> relax.Expr:
    return builder.call_te(
        compute,
        data,
        primfunc_name_hint="taken",
        primfunc_attrs={"op_pattern": _INJECTIVE},
    )
