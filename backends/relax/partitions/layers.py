"""Layers that libraries of whole networks have in common, and operators that need no others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from tvm import relax

from collage.backends.relax.calls.layouts import permutation, permutation_of
from collage.backends.relax.partitions.walk import PartitionWalk, Tensor
from collage.backends.relax.static_shape import static_shape


class Layers(ABC, Generic[Tensor]):
    """Adds layers to a library's network, each of which gives its output."""

    @abstractmethod
    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """A tensor as a Relax dtype; unchanged where it has it.

        Parameters
        ----------
        x : tensor
            What is cast.
        dtype : str
            Of Relax, such as ``float16``.

        Returns
        -------
        tensor
            ``x`` itself, or the output of a new layer.
        """

    @abstractmethod
    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """A tensor in another shape; unchanged where it has it.

        Parameters
        ----------
        x : tensor
            What is viewed.
        shape : sequence of int
            Of as many elements.

        Returns
        -------
        tensor
            ``x`` itself, or the output of a new layer.
        """

    @abstractmethod
    def permute(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """A tensor with its axes in another order; unchanged where they are in it.

        Parameters
        ----------
        x : tensor
            Whose axes are permuted.
        order : sequence of int
            By axis of the result, the tensor's axis.

        Returns
        -------
        tensor
            ``x`` itself, or the output of a new layer.
        """

    @abstractmethod
    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after the other along an axis.

        Parameters
        ----------
        parts : sequence of tensor
            Of one dtype and rank.
        axis : int
            Counted from 0.

        Returns
        -------
        tensor
            Its extent along the axis is the sum of theirs.
        """

    @abstractmethod
    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        """One of the library's reductions over axes.

        Parameters
        ----------
        kind : str
            The library's name of it.
        x : tensor
            The operand.
        axes : sequence of int
            Those that are reduced, counted from 0.
        keepdims : bool
            Whether they stay, with an extent of 1.

        Returns
        -------
        tensor
            The output of a new layer.
        """


class LayerWalk(PartitionWalk[Tensor], Layers[Tensor]):
    """A walk that writes a network."""


def _reshape(w: LayerWalk[Tensor], call: relax.Call) -> Tensor:
    return w.reshape(w.tensor(call.args[0]), static_shape(call))


def _permute_dims(w: LayerWalk[Tensor], call: relax.Call) -> Tensor:
    return w.permute(w.tensor(call.args[0]), permutation(call) or ())


def _layout_transform(w: LayerWalk[Tensor], call: relax.Call) -> Tensor:
    order = permutation_of(call)
    if order is None:
        raise w.error(f"layout_transform {call.attrs.index_map} is no permutation of axes")
    return w.permute(w.tensor(call.args[0]), order)


def _concat(w: LayerWalk[Tensor], call: relax.Call) -> Tensor:
    return w.concat(w.tensors(call.args[0]), int(call.attrs.axis or 0) % len(static_shape(call)))


def _stack(w: LayerWalk[Tensor], call: relax.Call) -> Tensor:
    shape = list(static_shape(call))
    axis = int(call.attrs.axis or 0) % len(shape)
    shape[axis] = 1
    return w.concat([w.reshape(part, shape) for part in w.tensors(call.args[0])], axis)


_VIEWS = ("reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims")

MOVEMENTS: Mapping[str, Callable[[LayerWalk[Any], relax.Call], Any]] = {
    **{f"relax.{name}": _reshape for name in _VIEWS},
    "relax.permute_dims": _permute_dims,
    "relax.layout_transform": _layout_transform,
    "relax.concat": _concat,
    "relax.stack": _stack,
}
"""What becomes of operators that :class:`Layers` are enough for."""
