"""Where updates of a scatter go, for kernels of any device.

TOPI's kernels go through all indices with a loop inside over what one of them chooses, cut for
threads at the wrong place on either kind of device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import relax, tirx

from collage.backends.relax.static_shape import static_shape


class Place(NamedTuple):
    """Where an update goes.

    Attributes
    ----------
    inside : list
        What holds where there is such a place.
    element : Expr
        Its number in the data.
    """

    inside: list[Any]
    element: Any


@dataclass(frozen=True)
class Scatter:
    """How updates find their places.

    Attributes
    ----------
    size, count : int
        Elements of the data, and of the updates.
    row : int
        Updates that follow each other to neighbouring places, with one index.
    place : callable
        From the buffer of indices and an update's number.
    """

    size: int
    count: int
    row: int
    place: Callable[[Any, Any], Place]

    @classmethod
    def of_rows(cls, call: relax.Call) -> Scatter:
        """Of a ``relax.scatter_nd``: places of the first axes are indexed."""
        data, indices, updates = call.args
        shape, depth = static_shape(data), static_shape(indices)[-1]
        row = math.prod(shape[depth:])

        def place(chosen: Any, number: Any) -> Place:
            inside: list[Any] = []
            offset: Any = 0
            for axis in range(depth):
                index = chosen[number // row * depth + axis]
                inside += [index >= 0, index < shape[axis]]
                offset = offset * shape[axis] + index
            return Place(inside, offset * row + number % row)

        return cls(math.prod(shape), math.prod(static_shape(updates)), row, place)

    @classmethod
    def of_elements(cls, call: relax.Call) -> Scatter:
        """Of a ``relax.scatter_elements``: places of one axis are indexed."""
        shape, taken = (static_shape(arg) for arg in call.args[:2])
        axis = int(call.attrs.axis) % len(shape)

        def place(chosen: Any, number: Any) -> Place:
            index = chosen[number]
            index = tirx.Select(index < 0, index + shape[axis], index)
            offset: Any = 0
            for each, extent in enumerate(shape):
                own = number // math.prod(taken[each + 1 :]) % taken[each]
                offset = offset * extent + (index if each == axis else own)
            return Place([index >= 0, index < shape[axis]], offset)

        return cls(math.prod(shape), math.prod(taken), 1, place)
