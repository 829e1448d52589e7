"""Layers of a TensorRT network, as converters ask for them: each gives its output tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collage.backends.relax.partitions.layers import Layers
from collage.backends.tensorrt.network.constants import ConstantWriter, TrtTensor
from collage.backends.tensorrt.network.values import mask


class LayerWriter(ConstantWriter, Layers[TrtTensor]):
    """Adds layers to a network; the parameters are those of :class:`ConstantWriter`.

    Whatever adds one raises :class:`~collage.backends.tensorrt.network.constants.RefusalError`
    where TensorRT does not make it.
    """

    def cast(self, x: TrtTensor, dtype: str) -> TrtTensor:
        """A tensor as a Relax dtype (in the region's precision); unchanged where it has it."""
        return self.cast_to(x, self.dtype(dtype))

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

    def reshape(self, x: TrtTensor, shape: Sequence[int]) -> TrtTensor:
        """A tensor in another shape; unchanged where it has it."""
        if tuple(x.shape) == tuple(shape):
            return x
        layer = self.network.add_shuffle(x)
        return self.output(layer, "reshape", reshape_dims=tuple(shape))

    def permute(self, x: TrtTensor, order: Sequence[int]) -> TrtTensor:
        """A tensor with its axes in another order; unchanged where they are in it."""
        if list(order) == list(range(len(order))):
            return x
        layer = self.network.add_shuffle(x)
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
        """Tensors one after the other along an axis."""
        return self.output(self.network.add_concatenation(parts), "concat", axis=axis)

    def reduce(self, kind: str, x: TrtTensor, axes: Sequence[int], keepdims: bool) -> TrtTensor:
        """A ``ReduceOperation`` over axes."""
        operation = getattr(self.trt.ReduceOperation, kind)
        return self.output(self.network.add_reduce(x, operation, mask(axes), keepdims), kind)
