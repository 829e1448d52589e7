"""From a Relax partition function to a TensorRT network: the walk and what converters share.

Composite functions are walked through, each operator once; every constant is bound where it is
first used, straight from the module's own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.relax.partition_walk import PartitionWalk, flatten, registration
from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype, tensor_shape
from collage.backends.tensorrt.library import Package, logged_reason
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.values import DTYPES, HALVES, Array, content_key, mask, rounded

TrtTensor: TypeAlias = Any
"""A ``tensorrt.ITensor``."""

Converted: TypeAlias = "TrtTensor | list[TrtTensor]"
Converter: TypeAlias = "Callable[[NetworkWriter, relax.Call], Converted]"

CONVERTERS: dict[str, Converter] = {}
"""By Relax operator; filled by ``convert_*.py`` through :func:`converts`."""


class RefusalError(CodegenError):
    """TensorRT, or this converter, does not take a region.

    Attributes
    ----------
    reason : str
        TensorRT's own words where it has said something.
    """

    def __init__(self, symbol: str, reason: str) -> None:
        super().__init__(f"tensorrt cannot compile '{symbol}': {reason}", value=symbol)
        self.reason = reason


converts = registration(CONVERTERS)
"""Decorator: register the converter of Relax operators (their names without ``relax.``)."""


class NetworkWriter(PartitionWalk[TrtTensor]):
    """Writes one partition function into a network.

    Parameters
    ----------
    package : Package
    network : tensorrt.INetworkDefinition
        Strongly typed and empty.
    logger : ILogger
        For the reasons of refusals.

    Attributes
    ----------
    trt : module
        The Python package.
    """

    handlers = CONVERTERS

    def __init__(
        self, package: Package, network: Any, logger: Any, options: TensorrtOptions, symbol: str
    ) -> None:
        super().__init__(symbol)
        self.trt: Any = package.module
        self.network = network
        self._logger = logger
        self._half = "float16" if options.use_fp16 else "bfloat16" if options.use_bf16 else ""
        self._constants: dict[str, TrtTensor] = {}
        self._weights: dict[str, Any] = {}
        self._kept: list[Array] = []
        """TensorRT reads weights from this memory until the engine is built."""

    @property
    def num_constants(self) -> int:
        """How many constants were bound; equal ones are one."""
        return len(self._kept)

    def write(self, function: relax.Function) -> None:
        """Write the whole network.

        Raises
        ------
        RefusalError
            When TensorRT turns a layer down, or something has no converter.
        """
        outputs = self.walk(function, self._input)
        types = leaf_types(function.ret_ty)
        for index, (tensor, ty) in enumerate(zip(outputs, types, strict=True)):
            wanted = self._io_dtype(str(ty.dtype))
            layer = (
                self.network.add_identity(tensor)
                if tensor.dtype == wanted
                else self.network.add_cast(tensor, wanted)
            )
            output = self.output(layer, f"output {index}")
            output.name = f"output{index}"
            self.network.mark_output(output)

    def _input(self, index: int, parameter: relax.Var) -> TrtTensor:
        shape = tensor_shape(parameter)
        if shape is None:
            raise self.error(f"input {index} is no static tensor: {parameter.ty}")
        dtype = self._io_dtype(tensor_dtype(parameter))
        tensor = self.network.add_input(f"input{index}", dtype, shape)
        self._check(tensor, f"input {index}")
        return self.cast(tensor, tensor_dtype(parameter))

    def error(self, text: str) -> RefusalError:
        return RefusalError(self.symbol, text)

    def output(self, layer: Any, what: str, index: int = 0, **settings: Any) -> TrtTensor:
        """A layer's output.

        Parameters
        ----------
        layer : tensorrt.ILayer
            As the network made it, or None.
        what : str
            Names it in the error.
        index : int
            Which of its outputs.
        **settings
            Attributes of the layer to set before.

        Raises
        ------
        RefusalError
            When TensorRT made no layer; has TensorRT's reason.
        """
        self._check(layer, what)
        for name, value in settings.items():
            setattr(layer, name, value)
        return layer.get_output(index)

    def _check(self, made: Any, what: str) -> None:
        if made is None:
            raise self.error(f"{what}: {logged_reason(self._logger)}")

    # What converters ask for.

    def dtype(self, name: str) -> Any:
        """TensorRT's dtype for values of a Relax dtype inside the region."""
        return self._io_dtype(self._half if name == "float32" and self._half else name)

    def _io_dtype(self, name: str) -> Any:
        if name not in DTYPES:
            raise self.error(f"TensorRT has no dtype {name}")
        return getattr(self.trt.DataType, DTYPES[name])

    def array(self, expr: relax.Expr) -> Array | None:
        """A constant argument's values as they are in the module, or None."""
        if not isinstance(expr, tvm.ir.GenericConst):
            return None
        if str(expr.ty.dtype) == "bfloat16":
            return np.asarray(expr.value.numpy())
        return np.from_dlpack(expr.value)

    def weights(self, array: Array, *, exact: bool = False) -> Any:
        """Weights over an array's memory; equal arrays are bound once.

        Parameters
        ----------
        exact : bool
            Keep float32 where the region is in half precision.
        """
        if array.dtype == np.float32 and self._half and not exact:
            half: np.dtype[Any] | None = HALVES[self._half]
        else:
            half = None
        key = f"{content_key(array)}:{half}"
        if key not in self._weights:
            array = array if half is None else rounded(array, half)
            # Not ascontiguousarray: that would give a scalar one dimension.
            array = np.require(array, requirements="C")
            self._kept.append(array)
            dtype = self._io_dtype(array.dtype.name)
            self._weights[key] = self.trt.Weights(dtype, array.ctypes.data, array.size)
        return self._weights[key]

    def constant(self, array: Array, *, exact: bool = False) -> TrtTensor:
        """A tensor with an array's values; equal arrays are one tensor. ``exact`` as above."""
        key = f"{content_key(array)}:{exact}"
        if key not in self._constants:
            layer = self.network.add_constant(array.shape, self.weights(array, exact=exact))
            self._constants[key] = self.output(layer, f"constant of shape {array.shape}")
        return self._constants[key]

    def filled(self, value: float, like: TrtTensor) -> TrtTensor:
        """A constant of one element with the rank and dtype of another tensor."""
        name = next(k for k, v in DTYPES.items() if like.dtype == getattr(self.trt.DataType, v))
        dtype = HALVES.get(name) or np.dtype(name)
        return self.constant(np.full([1] * len(like.shape), value, dtype), exact=True)

    def cast(self, tensor: TrtTensor, name: str) -> TrtTensor:
        """A tensor as a Relax dtype (in the region's precision); unchanged where it has it."""
        return self.cast_to(tensor, self.dtype(name))

    def cast_to(self, tensor: TrtTensor, dtype: Any) -> TrtTensor:
        """A tensor as a TensorRT dtype; unchanged where it has it."""
        if tensor.dtype == dtype:
            return tensor
        return self.output(self.network.add_cast(tensor, dtype), "cast")

    def in_float32(self, tensor: TrtTensor) -> TrtTensor:
        """A tensor of half precision as float32, for what needs its range; others unchanged."""
        if tensor.dtype in (self.trt.DataType.HALF, self.trt.DataType.BF16):
            return self.cast_to(tensor, self.trt.DataType.FLOAT)
        return tensor

    def reshape(self, tensor: TrtTensor, shape: Sequence[int]) -> TrtTensor:
        """A tensor in another shape; unchanged where it has it."""
        if tuple(tensor.shape) == tuple(shape):
            return tensor
        layer = self.network.add_shuffle(tensor)
        return self.output(layer, "reshape", reshape_dims=tuple(shape))

    def permute(self, tensor: TrtTensor, order: Sequence[int]) -> TrtTensor:
        """A tensor with its axes in another order; unchanged where they are in it."""
        if list(order) == list(range(len(order))):
            return tensor
        layer = self.network.add_shuffle(tensor)
        return self.output(layer, "permute", first_transpose=tuple(order))

    def with_rank(self, tensor: TrtTensor, rank: int) -> TrtTensor:
        """A tensor with axes of extent 1 put before its own."""
        missing = rank - len(tensor.shape)
        return self.reshape(tensor, (1,) * missing + tuple(tensor.shape))

    def binary(self, kind: str, a: TrtTensor, b: TrtTensor) -> TrtTensor:
        """An ``ElementWiseOperation`` of two tensors, broadcast as numpy does."""
        rank = max(len(a.shape), len(b.shape))
        operation = getattr(self.trt.ElementWiseOperation, kind)
        layer = self.network.add_elementwise(
            self.with_rank(a, rank), self.with_rank(b, rank), operation
        )
        return self.output(layer, kind)

    def unary(self, kind: str, x: TrtTensor) -> TrtTensor:
        """A ``UnaryOperation``."""
        return self.output(self.network.add_unary(x, getattr(self.trt.UnaryOperation, kind)), kind)

    def activation(self, kind: str, x: TrtTensor, **values: Any) -> TrtTensor:
        """An ``ActivationType`` with its ``alpha`` and ``beta``."""
        layer = self.network.add_activation(x, getattr(self.trt.ActivationType, kind))
        return self.output(layer, kind, **values)

    def softmax(self, x: TrtTensor, axis: int) -> TrtTensor:
        """A softmax over one axis."""
        return self.output(self.network.add_softmax(x), "softmax", axes=1 << axis)

    def concat(self, parts: Sequence[TrtTensor], axis: int) -> TrtTensor:
        """Tensors one after the other along an axis."""
        return self.output(self.network.add_concatenation(parts), "concat", axis=axis)

    def reduce(self, kind: str, x: TrtTensor, axes: Sequence[int], keepdims: bool) -> TrtTensor:
        """A ``ReduceOperation`` over axes."""
        operation = getattr(self.trt.ReduceOperation, kind)
        return self.output(self.network.add_reduce(x, operation, mask(axes), keepdims), kind)

    def constant_tensor(self, constant: tvm.ir.GenericConst) -> TrtTensor:
        array = self.array(constant)
        assert array is not None
        return self.constant(array)

    def check(self, call: relax.Call, name: str, result: Converted) -> None:
        for tensor, ty in zip(flatten(result), leaf_types(call.ty), strict=True):
            self._hold_to(tensor, ty, name)

    def _hold_to(self, tensor: TrtTensor, ty: relax.TensorType, name: str) -> None:
        """A converter must give what Relax says; a difference would be silent otherwise."""
        wanted = static_shape(ty)
        given = tuple(tensor.shape)
        if given != wanted:
            # TensorRT finds contradictions when it infers shapes, and then logs them.
            reason = logged_reason(self._logger) if len(given) != len(wanted) else ""
            raise self.error(f"{name} gives shape {given}, not {wanted}; {reason}".rstrip("; "))
        dtype = self.dtype(str(ty.dtype))
        if tensor.dtype != dtype:
            raise self.error(f"{name} gives dtype {tensor.dtype}, not {dtype}")
