"""A call for two extents of a dimension, as the rules see it that say whether slices are mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tvm import relax

from collage.backends.contract.errors import CollageError
from collage.backends.relax.static_shape import static_shape, tensor_shape

Axes = int | None | tuple["Axes", ...]
"""The axis that has the extent, or None; of a tuple, of each part."""


class UnprovenError(CollageError):
    """It is not known that padding an axis changes nothing."""


@dataclass(frozen=True)
class Operands:
    """A call for two extents, and what is known of its operands.

    Attributes
    ----------
    name : str
        The operator's.
    large, small : relax.Call
        The call for the larger extent, and for the smaller.
    axes : tuple
        Of each argument. The axis may have a multiple of the extent: then it is that of as many
        slices of a few elements each, one behind the other.
    extents : tuple of int
        The two.
    """

    name: str
    large: relax.Call
    small: relax.Call
    axes: tuple[Axes, ...]
    extents: tuple[int, int]

    def axis(self, index: int = 0) -> int | None:
        """That of one operand, a tensor."""
        found = self.axes[index]
        return self.mixes() if isinstance(found, tuple) else found

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """One operand's, for the larger extent."""
        return static_shape(self.large.args[index])

    def only(self, index: int = 0) -> int | None:
        """The axis of one operand; all the others must not have the extent at all."""
        if any(has_extent(axes) for place, axes in enumerate(self.axes) if place != index):
            self.mixes()
        return self.axis(index)

    def past(self, taken: object, index: int = 0) -> int | None:
        """The axis of one operand, as :meth:`only` and :meth:`along` have it.

        Parameters
        ----------
        taken : object
            Axes, as attributes have them.
        index : int
            Of the operand.

        Returns
        -------
        int or None
            None where the operator works along it, or there is none.
        """
        return self.along(self.only(index), taken, len(self.shape(index)))

    def parts(self) -> int | None:
        """The axis of the only operand, a tuple: the same in all of its parts."""
        (fields,) = self.axes
        places = set(fields) if isinstance(fields, tuple) else {fields}
        (axis, *more) = places
        return self.mixes() if more or isinstance(axis, tuple) else axis

    def aligned(self, index: int | None = None) -> int | None:
        """The axis of operands that are aligned to the right, counted from there.

        Where one has the extent, another has it too, or 1.

        Parameters
        ----------
        index : int or None
            Of an operand that is a tuple of them; None where all operands are.
        """
        found: Axes = self.axes if index is None else self.axes[index]
        places = found if isinstance(found, tuple) else self.mixes()
        types = [arg.ty for arg in self.large.args]
        if index is not None:
            types = list(types[index].fields)
        shapes = [tensor_shape(ty) if isinstance(ty, relax.TensorType) else None for ty in types]
        counted = set()
        for axis, shape in zip(places, shapes, strict=True):
            if isinstance(axis, tuple):
                self.mixes()
            if axis is not None and shape is not None:
                counted.add(axis - len(shape))
        if len(counted) > 1:
            self.mixes()
        for place in counted:
            for axis, shape in zip(places, shapes, strict=True):
                if axis is None and shape and -place <= len(shape) and shape[place] != 1:
                    self.mixes()
        return counted.pop() if counted else None

    def along(self, axis: int | None, taken: object, rank: int) -> int | None:
        """The axis, unless it is among those that an operator works along.

        Parameters
        ----------
        axis : int or None
            That in question.
        taken : int, sequence of int or None
            Those of the operator; None for all.
        rank : int
            Of the operand.

        Returns
        -------
        int or None
            None where it is among them, or there is none.
        """
        if axis is None:
            return None
        if axis in axes_of(taken, rank):
            self.mixes()
        return axis

    def mixes(self) -> NoReturn:
        """Say that slices are mixed, or may be.

        Raises
        ------
        UnprovenError
            Always; names the operator and the shapes of its operands.
        """
        raise UnprovenError(f"{self.name} mixes slices, or may: an operand is {self._where()}")

    def _where(self) -> str:
        shapes = [_text(arg) for arg in self.large.args]
        return ", ".join(shapes)


def _text(arg: relax.Expr) -> str:
    return str(arg.ty) if hasattr(arg, "ty") else str(arg)


def has_extent(axes: Axes) -> bool:
    """Whether a tensor, or any part of a tuple, has the extent on some axis."""
    return any(map(has_extent, axes)) if isinstance(axes, tuple) else axes is not None


def axes_of(taken: object, rank: int) -> set[int]:
    """Axes as attributes have them, counted from the front; None stands for all.

    Parameters
    ----------
    taken : object
        A number, several, or None.
    rank : int
        Of the tensor.

    Returns
    -------
    set of int
        All from 0 to below the rank.
    """
    if taken is None:
        return set(range(rank))
    values = [taken] if not hasattr(taken, "__iter__") else taken
    return {int(value) % rank for value in values}
