"""Layers of a TensorRT network, as converters ask for them: each gives its output tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collage.backends.tensorrt.network.constants import ConstantWriter, TrtTensor
from collage.backends.tensorrt.network.values import mask


class LayerWriter(ConstantWriter):
    """Adds layers to a network; the parameters are those of :class:`ConstantWriter`.

    Whatever adds one raises :class:`~collage.backends.tensorrt.network.constants.RefusalError`
    where TensorRT does not make it.
    """

    def cast(self, tensor: TrtTensor, name: str) -> TrtTensor:
        """A tensor as a Relax dtype (in the region's precision); unchanged where it has it.

        Parameters
        ----------
        tensor : TrtTensor
            What is cast.
        name : str
            Of the Relax dtype, such as ``float16``.

        Returns
        -------
        TrtTensor
            In half precision where that is the region's and the name is ``float32``.
        """
        return self.cast_to(tensor, self.dtype(name))

    def cast_to(self, tensor: TrtTensor, dtype: Any) -> TrtTensor:
        """A tensor as a TensorRT dtype; unchanged where it has it.

        Parameters
        ----------
        tensor : TrtTensor
            What is cast.
        dtype : tensorrt.DataType
            What it becomes.

        Returns
        -------
        TrtTensor
            Of the same shape.
        """
        if tensor.dtype == dtype:
            return tensor
        return self.output(self.network.add_cast(tensor, dtype), "cast")

    def in_float32(self, tensor: TrtTensor) -> TrtTensor:
        """A tensor of half precision as float32, for what needs its range; others unchanged."""
        if tensor.dtype in (self.trt.DataType.HALF, self.trt.DataType.BF16):
            return self.cast_to(tensor, self.trt.DataType.FLOAT)
        return tensor

    def reshape(self, tensor: TrtTensor, shape: Sequence[int]) -> TrtTensor:
        """A tensor in another shape; unchanged where it has it.

        Parameters
        ----------
        tensor : TrtTensor
            What is viewed.
        shape : sequence of int
            Of as many elements.

        Returns
        -------
        TrtTensor
            Of the same elements in the same order.
        """
        if tuple(tensor.shape) == tuple(shape):
            return tensor
        layer = self.network.add_shuffle(tensor)
        return self.output(layer, "reshape", reshape_dims=tuple(shape))

    def permute(self, tensor: TrtTensor, order: Sequence[int]) -> TrtTensor:
        """A tensor with its axes in another order; unchanged where they are in it.

        Parameters
        ----------
        tensor : TrtTensor
            Whose axes are permuted.
        order : sequence of int
            By axis of the result, the tensor's axis.

        Returns
        -------
        TrtTensor
            Its axis ``i`` is the tensor's axis ``order[i]``.
        """
        if list(order) == list(range(len(order))):
            return tensor
        layer = self.network.add_shuffle(tensor)
        return self.output(layer, "permute", first_transpose=tuple(order))

    def with_rank(self, tensor: TrtTensor, rank: int) -> TrtTensor:
        """A tensor with axes of extent 1 put before its own.

        Parameters
        ----------
        tensor : TrtTensor
            Of this rank or less.
        rank : int
            Axes of the result.

        Returns
        -------
        TrtTensor
            A view of the same elements.
        """
        missing = rank - len(tensor.shape)
        return self.reshape(tensor, (1,) * missing + tuple(tensor.shape))

    def binary(self, kind: str, a: TrtTensor, b: TrtTensor) -> TrtTensor:
        """An ``ElementWiseOperation`` of two tensors, broadcast as numpy does.

        Parameters
        ----------
        kind : str
            Its name, such as ``PROD``.
        a, b : TrtTensor
            Of one dtype and any ranks.

        Returns
        -------
        TrtTensor
            Of the broadcast shape; boolean for comparisons, else of the operands' dtype.
        """
        rank = max(len(a.shape), len(b.shape))
        operation = getattr(self.trt.ElementWiseOperation, kind)
        layer = self.network.add_elementwise(
            self.with_rank(a, rank), self.with_rank(b, rank), operation
        )
        return self.output(layer, kind)

    def unary(self, kind: str, x: TrtTensor) -> TrtTensor:
        """A ``UnaryOperation``.

        Parameters
        ----------
        kind : str
            Its name, such as ``SQRT``.
        x : TrtTensor
            The operand.

        Returns
        -------
        TrtTensor
            Of the operand's shape and dtype.
        """
        return self.output(self.network.add_unary(x, getattr(self.trt.UnaryOperation, kind)), kind)

    def activation(self, kind: str, x: TrtTensor, **values: Any) -> TrtTensor:
        """An ``ActivationType`` with its ``alpha`` and ``beta``.

        Parameters
        ----------
        kind : str
            Its name, such as ``CLIP``.
        x : TrtTensor
            The operand.
        **values : float
            ``alpha`` and ``beta``, where the kind has them.

        Returns
        -------
        TrtTensor
            Of the operand's shape and dtype.
        """
        layer = self.network.add_activation(x, getattr(self.trt.ActivationType, kind))
        return self.output(layer, kind, **values)

    def softmax(self, x: TrtTensor, axis: int) -> TrtTensor:
        """A softmax over one axis.

        Parameters
        ----------
        x : TrtTensor
            The operand.
        axis : int
            Counted from 0.

        Returns
        -------
        TrtTensor
            Of the operand's shape and dtype.
        """
        return self.output(self.network.add_softmax(x), "softmax", axes=1 << axis)

    def concat(self, parts: Sequence[TrtTensor], axis: int) -> TrtTensor:
        """Tensors one after the other along an axis.

        Parameters
        ----------
        parts : sequence of TrtTensor
            Of one dtype and rank.
        axis : int
            Counted from 0.

        Returns
        -------
        TrtTensor
            Its extent along the axis is the sum of theirs.
        """
        return self.output(self.network.add_concatenation(parts), "concat", axis=axis)

    def reduce(self, kind: str, x: TrtTensor, axes: Sequence[int], keepdims: bool) -> TrtTensor:
        """A ``ReduceOperation`` over axes.

        Parameters
        ----------
        kind : str
            Its name, such as ``SUM``.
        x : TrtTensor
            The operand.
        axes : sequence of int
            Those that are reduced, counted from 0.
        keepdims : bool
            Whether they stay, with an extent of 1.

        Returns
        -------
        TrtTensor
            Of the operand's dtype, without the axes or with 1 in their place.
        """
        operation = getattr(self.trt.ReduceOperation, kind)
        return self.output(self.network.add_reduce(x, operation, mask(axes), keepdims), kind)
