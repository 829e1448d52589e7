"""What the evaluator's operators take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

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


def result_shape(call: relax.Call) -> tuple[int, ...]:
    """The static shape that a call's type promises."""
    return tuple(int(d) for d in call.ty.shape)


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """A reduction's axes, all of them for None, normalized to 0 … rank-1."""
    if axis is None:
        return tuple(range(rank))
    values = [axis] if isinstance(axis, int) else axis
    return tuple(int(a) % rank for a in values)


def working_dtype(array: Array) -> np.dtype[Any]:
    """Half precision is computed in float32 and rounded once at the end."""
    name = array.dtype.name
    return np.dtype(np.float32) if name in ("float16", "bfloat16") else array.dtype


def widen(array: Array) -> Array:
    """The array in its working dtype (no copy for float32 and float64)."""
    return array.astype(working_dtype(array), copy=False)
