"""The nodes of an ONNX model, as converters ask for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from onnx import helper
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.partitions.layers import Layers
from collage.backends.toolchain.shared_bytes import SharedBytes

Array: TypeAlias = NDArray[Any]

OPSET = 20
CONTRIB = "com.microsoft"
"""onnxruntime's own operators."""

ELEMENT_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
}
"""Relax dtypes, and both ``TensorProto.DataType`` and ``ONNXTensorElementDataType``."""

MAX_RANK = 8
"""What a region's tensors are described with; onnxruntime itself has no such limit."""

WEIGHTS = "weights"
"""The file that models say their constants are in: memory that the session is given."""

_INLINE_BYTES = 1024
"""Constants up to that stand in the model, where shapes are worked out from them."""


@dataclass(frozen=True)
class OrtTensor:
    """A value of the model.

    Attributes
    ----------
    name : str
        Of the value.
    dtype : str
        Of Relax.

    Examples
    --------
    >>> OrtTensor("v0", "float32").dtype
    'float32'
    """

    name: str
    dtype: str


class ModelWriter(Layers[OrtTensor]):
    """Makes nodes and constants.

    Parameters
    ----------
    symbol : str
        The partition's, for errors.
    shared : SharedBytes
        Gets the bytes of large constants.
    """

    def __init__(self, symbol: str, shared: SharedBytes) -> None:
        self.symbol = symbol
        self._shared = shared
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], OrtTensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        """What is known of values, by name."""

    def error(self, text: str) -> CodegenError:
        """The error to raise where something cannot be written."""
        return CodegenError(
            f"onnxruntime cannot compile '{self.symbol}': {text}", value=self.symbol
        )

    def element_type(self, dtype: str) -> int:
        """ONNX's number for a Relax dtype.

        Raises
        ------
        CodegenError
            When regions have none of it.
        """
        if dtype not in ELEMENT_TYPES:
            raise self.error(f"regions have no dtype {dtype}")
        return ELEMENT_TYPES[dtype]

    def array(self, expr: relax.Expr) -> Array | None:
        """A constant argument's values, or None."""
        if not isinstance(expr, tvm.ir.GenericConst):
            return None
        return constant_data(expr)

    def constant(self, array: Array) -> OrtTensor:
        """A constant of an array's values; equal ones are one."""
        # Not ascontiguousarray: that would give a scalar one dimension.
        array = np.require(array, requirements="C")
        dtype = array.dtype.name
        data = array.reshape(-1).view(np.uint8).data
        key = (dtype, array.shape, hashlib.sha256(data).digest())
        if key not in self._constants:
            name = f"c{len(self._constants)}"
            tensor = onnx.TensorProto(
                name=name, data_type=self.element_type(dtype), dims=array.shape
            )
            if len(data) <= _INLINE_BYTES:
                tensor.raw_data = bytes(data)
            else:
                tensor.data_location = onnx.TensorProto.EXTERNAL
                place = {
                    "location": WEIGHTS, "offset": self._shared.place(data), "length": len(data),
                }  # fmt: skip
                for entry, value in place.items():
                    tensor.external_data.add(key=entry, value=str(value))
            self._initializers.append(tensor)
            self._constants[key] = OrtTensor(name, dtype)
            self.shapes[name] = array.shape
        return self._constants[key]

    def numbers(self) -> dict[str, Array]:
        """The constants that stand in the model, by name."""
        made = ((one.name, one) for one in self._initializers if one.HasField("raw_data"))
        return {name: onnx.numpy_helper.to_array(one) for name, one in made}

    def integers(self, values: Sequence[int]) -> OrtTensor:
        """A list of integers: axes, a shape."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float, dtype: str = "float32") -> OrtTensor:
        """A scalar.

        Parameters
        ----------
        value : float
            The number.
        dtype : str
            That it is to have.

        Returns
        -------
        OrtTensor
            A constant without axes.
        """
        return self.constant(np.array(value, dtype))

    def nodes(
        self,
        kind: str,
        inputs: Sequence[OrtTensor | None],
        dtypes: Sequence[str],
        domain: str = "",
        **attributes: Any,
    ) -> list[OrtTensor]:
        """A node, by its outputs.

        Parameters
        ----------
        kind : str
            The operator.
        inputs : sequence of OrtTensor or None
            None for one that is left out.
        dtypes : sequence of str
            Of the outputs.
        domain : str
            Of the operator.
        **attributes
            As ONNX calls them.

        Returns
        -------
        list of OrtTensor
            One for each dtype.
        """
        place = len(self._nodes)
        made = [OrtTensor(f"v{place}_{index}", dtype) for index, dtype in enumerate(dtypes)]
        names = ["" if one is None else one.name for one in inputs]
        outputs = [one.name for one in made]
        self._nodes.append(
            helper.make_node(kind, names, outputs, f"n{place}", domain=domain, **attributes)
        )
        return made

    def node(
        self,
        kind: str,
        *inputs: OrtTensor | None,
        dtype: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> OrtTensor:
        """A node with one output, of its first input's dtype unless another one is given.

        Parameters
        ----------
        kind : str
            The operator.
        *inputs : OrtTensor or None
            None for one that is left out.
        dtype : str, optional
            Of the output.
        domain : str
            Of the operator.
        **attributes
            As ONNX calls them.

        Returns
        -------
        OrtTensor
            The output.
        """
        if dtype is None:
            assert inputs[0] is not None
            dtype = inputs[0].dtype
        return self.nodes(kind, inputs, [dtype], domain, **attributes)[0]

    def shape(self, x: OrtTensor) -> tuple[int, ...]:
        """A value's extents: of an operator's operand or result, a constant or a view of these."""
        return self.shapes[x.name]

    def _known(self, x: OrtTensor, shape: Sequence[int]) -> OrtTensor:
        self.shapes[x.name] = tuple(shape)
        return x

    def reshape(self, x: OrtTensor, shape: Sequence[int]) -> OrtTensor:
        if self.shapes.get(x.name) == tuple(shape):
            return x
        return self._known(self.node("Reshape", x, self.integers(shape)), shape)

    def permute(self, x: OrtTensor, order: Sequence[int]) -> OrtTensor:
        if list(order) == list(range(len(order))):
            return x
        made = self.node("Transpose", x, perm=list(order))
        if x.name in self.shapes:
            self._known(made, [self.shapes[x.name][axis] for axis in order])
        return made

    def concat(self, parts: Sequence[OrtTensor], axis: int) -> OrtTensor:
        return self.node("Concat", *parts, axis=axis)

    def cast(self, x: OrtTensor, dtype: str) -> OrtTensor:
        if x.dtype == dtype:
            return x
        made = self.node("Cast", x, dtype=dtype, to=self.element_type(dtype))
        return self._known(made, self.shapes[x.name]) if x.name in self.shapes else made

    def reduce(self, kind: str, x: OrtTensor, axes: Sequence[int], keepdims: bool) -> OrtTensor:
        """One of ONNX's reductions over axes."""
        return self.node(f"Reduce{kind}", x, self.integers(axes), keepdims=int(keepdims))
