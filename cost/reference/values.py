"""What the evaluator's operators take and give, and that it is of its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import MeasurementError
from collage.backends.relax.static_shape import static_shape

Array = NDArray[Any]

Value = Any
"""An array, a tuple of values, a shape (tuple of int), a number, or a function."""

Operator = Callable[[relax.Call, list[Value]], Value]
"""Takes the call (for its attributes and its type) and the evaluated arguments."""

OperatorTable = Mapping[str, Operator]


class UnsupportedOperator(Exception):
    """An operator, or a variant of one, that has no numpy implementation here."""


def ints(values: Any) -> list[int]:
    """An attribute or argument of several integers as Python integers."""
    return [int(v) for v in values]


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """A reduction's axes, normalized to 0 … rank-1.

    Parameters
    ----------
    axis : int, sequence of int or None
        None for all of them.
    rank : int
        Of the array.

    Returns
    -------
    tuple of int
        All axes where ``axis`` is None; in the order in which they were given.
    """
    if axis is None:
        return tuple(range(rank))
    values = [axis] if isinstance(axis, int) else axis
    return tuple(int(a) % rank for a in values)


WIDE = {"float16": "float32", "bfloat16": "float32"}
"""What half precision is computed in; it is rounded once, at a function's end."""


def widen(array: Array) -> Array:
    """The array in the precision it is computed in (no copy for float32 and float64)."""
    return array.astype(WIDE.get(array.dtype.name, array.dtype), copy=False)


def leaves(value: Value) -> list[Array]:
    """The tensors of a possibly nested value, in order.

    Returns
    -------
    list of ndarray
        Each contiguous.
    """
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [np.ascontiguousarray(value).reshape(np.shape(value))]


def in_type(value: Value, ty: tvm.ir.Type) -> Value:
    """A value with no more digits than its type has: equal ones must compare equal.

    Parameters
    ----------
    value : Value
        An argument's.
    ty : tvm.ir.Type
        The argument's.

    Returns
    -------
    Value
        In the precision it is computed in; what is no tensor, unchanged.
    """
    if isinstance(value, np.ndarray) and isinstance(ty, relax.TensorType):
        return widen(value.astype(str(ty.dtype), copy=False))
    return value


def of_shape(value: Value, call: relax.Call) -> Value:
    """A result whose shape is what the call's type promises.

    Parameters
    ----------
    value : Value
        What an operator gave.
    call : relax.Call
        Of that operator.

    Returns
    -------
    Value
        ``value`` itself.

    Raises
    ------
    MeasurementError
        When it has another shape.
    """
    if isinstance(value, np.ndarray | np.generic) and isinstance(call.ty, relax.TensorType):
        shape = static_shape(call)
        if np.shape(value) != shape:
            raise MeasurementError(
                f"the reference's {call.op.name} gave shape {np.shape(value)}, not {shape}"
            )
    return value
