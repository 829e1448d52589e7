"""Elements read and written where a tensor of places says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from collage.cost.reference.values import Array, OperatorTable, UnsupportedOperator, Value

Index = tuple[Array, ...]


def _places(indices: Array, extent: int) -> Array:
    """Counted from the first; negative ones count from the last."""
    whole = np.asarray(indices).astype("int64")
    return np.where(whole < 0, whole + extent, whole)


def _add(found: Array, index: Index, values: Array) -> None:
    np.add.at(found, index, values)


def _multiply(found: Array, index: Index, values: Array) -> None:
    np.multiply.at(found, index, values)


def _least(found: Array, index: Index, values: Array) -> None:
    np.minimum.at(found, index, values)


def _most(found: Array, index: Index, values: Array) -> None:
    np.maximum.at(found, index, values)


def _replace(found: Array, index: Index, values: Array) -> None:
    found[index] = values


_WRITES: dict[str, Callable[[Array, Index, Array], None]] = {
    "update": _replace,
    "add": _add,
    "mul": _multiply,
    "min": _least,
    "max": _most,
}


def _written(x: Array, index: Index, values: Array, how: str) -> Array:
    if how not in _WRITES:
        raise UnsupportedOperator(f"a scatter with reduction '{how}'")
    found = np.array(x)
    _WRITES[how](found, index, values)
    return found


def _scatter_elements(call: relax.Call, args: list[Value]) -> Value:
    x, indices, updates = args
    axis = int(call.attrs.axis) % x.ndim
    index = list(np.indices(indices.shape, sparse=True))
    index[axis] = _places(indices, x.shape[axis])
    values = np.broadcast_to(updates[tuple(map(slice, indices.shape))], indices.shape)
    return _written(x, tuple(index), values, str(call.attrs.reduction))


def _of_rows(indices: Array, shape: Sequence[int]) -> Index:
    """Indices whose last axis goes through the axes of what is indexed."""
    return tuple(_places(indices[..., axis], shape[axis]) for axis in range(indices.shape[-1]))


def _scatter_nd(call: relax.Call, args: list[Value]) -> Value:
    x, indices, updates = args
    return _written(x, _of_rows(indices, x.shape), updates, str(call.attrs.reduction))


def _gather_nd(call: relax.Call, args: list[Value]) -> Value:
    x, indices = args
    lead = int(call.attrs.batch_dims)
    batch = np.indices(indices.shape[:-1], sparse=True)[:lead]
    return x[(*batch, *_of_rows(indices, x.shape[lead:]))]


def _by_tensors(x: Array, indices: Any) -> Index:
    given = indices if isinstance(indices, tuple | list) else (indices,)
    return tuple(_places(index, x.shape[axis]) for axis, index in enumerate(given))


def _index_tensor(_: relax.Call, args: list[Value]) -> Value:
    return args[0][_by_tensors(args[0], args[1])]


def _index_put(call: relax.Call, args: list[Value]) -> Value:
    x, indices, values = args
    how = "add" if call.attrs.accumulate else "update"
    return _written(x, _by_tensors(x, indices), values, how)


INDEXING: OperatorTable = {
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
    "relax.index_put": _index_put,
}
"""By their names in Relax."""
