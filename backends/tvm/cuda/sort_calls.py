"""What calls of Relax's sorts ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tvm import relax

from collage.backends.relax.static_shape import static_shape

SORTS = ("relax.sort", "relax.argsort", "relax.topk")


@dataclass(frozen=True)
class SortCall:
    """A sort of the lines along an axis.

    Attributes
    ----------
    axis : int
        Not negative.
    taken : int
        How many of the first are wanted.
    descending : bool
        Largest first.
    values, places : bool
        What is given of them, in this order.
    results : tuple of ((int, ...), str)
        Shapes and dtypes.
    """

    axis: int
    taken: int
    descending: bool
    values: bool
    places: bool
    results: tuple[tuple[tuple[int, ...], str], ...]

    @classmethod
    def of(cls, call: relax.Call) -> Self:
        """What a call of one of :data:`SORTS` asks for.

        Parameters
        ----------
        call : relax.Call
            Of a static shape with an axis.

        Returns
        -------
        SortCall
            A ``k`` of zero or less takes all.
        """
        name, attrs, shape = str(call.op.name), call.attrs, static_shape(call.args[0])
        axis = int(attrs.axis) % len(shape)
        chosen = name == "relax.topk"
        wanted = {"relax.sort": "values", "relax.argsort": "indices"}.get(name)
        wanted = wanted or str(attrs.ret_type)
        types = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
        return cls(
            axis,
            min(int(attrs.k), shape[axis]) if chosen and int(attrs.k) > 0 else shape[axis],
            bool(attrs.largest) if chosen else bool(attrs.descending),
            wanted in ("values", "both"),
            wanted in ("indices", "both"),
            tuple((tuple(static_shape(each)), str(each.dtype)) for each in types),
        )
