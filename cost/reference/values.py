"""What the evaluator's operators take and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
