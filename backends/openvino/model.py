"""The nodes of an OpenVINO model, as converters ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.openvino.library import python_api
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.partitions.layers import Layers

Array: TypeAlias = NDArray[Any]

OvTensor: TypeAlias = Any
"""An ``openvino.Output``: one output of a node."""

DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "uint8": "u8",
    "bool": "boolean",
}
"""Relax dtypes and OpenVINO's names for them."""

MAX_RANK = 8
"""More dimensions are beyond what the CPU plugin's kernels are made for."""


class ModelWriter(Layers[OvTensor]):
    """Makes nodes.

    Parameters
    ----------
    symbol : str
        The partition's, for errors.

    Attributes
    ----------
    op : module
        OpenVINO's operators.
    """

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.ov = python_api()
        self.op: Any = self.ov.opset16
        self._kept: list[Array] = []
        """OpenVINO reads constants from this memory and does not keep it alive."""

    def error(self, text: str) -> CodegenError:
        """The error to raise where something cannot be written."""
        return CodegenError(f"openvino cannot compile '{self.symbol}': {text}", value=self.symbol)

    def dtype(self, name: str) -> Any:
        """OpenVINO's type for a Relax dtype.

        Raises
        ------
        CodegenError
            When it has none.
        """
        if name not in DTYPES:
            raise self.error(f"OpenVINO has no dtype {name}")
        return getattr(self.ov.Type, DTYPES[name])

    def array(self, expr: relax.Expr) -> Array | None:
        """A constant argument's values, or None."""
        if not isinstance(expr, tvm.ir.GenericConst):
            return None
        return constant_data(expr)

    def constant(self, array: Array) -> OvTensor:
        """A constant over an array's memory."""
        kind = self.dtype(array.dtype.name)
        # Not ascontiguousarray: that would give a scalar one dimension.
        array = np.require(array, requirements="C")
        if array.dtype.name == "bfloat16":
            array = array.view(np.uint16)
        self._kept.append(array)
        tensor = self.ov.Tensor(array, self.ov.Shape(array.shape), kind)
        return self.ov.op.Constant(tensor, True).output(0)

    def integers(self, values: Sequence[int]) -> OvTensor:
        """A list of integers: axes, a shape."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float, like: OvTensor) -> OvTensor:
        """A scalar of another tensor's type.

        Parameters
        ----------
        value : float
            The number.
        like : OvTensor
            Of the type that it is to have.

        Returns
        -------
        OvTensor
            A constant without axes.
        """
        return self.ov.op.Constant(like.get_element_type(), self.ov.Shape([]), [value]).output(0)

    def shape(self, x: OvTensor) -> tuple[int, ...]:
        """A tensor's extents."""
        return tuple(x.get_shape())

    def reshape(self, x: OvTensor, shape: Sequence[int]) -> OvTensor:
        if self.shape(x) == tuple(shape):
            return x
        return self.op.reshape(x, self.integers(shape), False).output(0)

    def permute(self, x: OvTensor, order: Sequence[int]) -> OvTensor:
        if list(order) == list(range(len(order))):
            return x
        return self.op.transpose(x, self.integers(order)).output(0)

    def concat(self, parts: Sequence[OvTensor], axis: int) -> OvTensor:
        return self.op.concat(parts, axis).output(0)

    def cast(self, x: OvTensor, dtype: str) -> OvTensor:
        kind = self.dtype(dtype)
        if x.get_element_type() == kind:
            return x
        return self.op.convert(x, kind.get_type_name()).output(0)

    def reduce(self, kind: str, x: OvTensor, axes: Sequence[int], keepdims: bool) -> OvTensor:
        """One of OpenVINO's reductions over axes."""
        return getattr(self.op, f"reduce_{kind}")(x, self.integers(axes), keepdims).output(0)
