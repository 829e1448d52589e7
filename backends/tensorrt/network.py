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

from collage.backends.errors import CodegenError
from collage.backends.patterns import tensor_dtype, tensor_shape
from collage.backends.tensorrt.adapter import Package, logged_reason
from collage.backends.tensorrt.options import TensorrtOptions
from collage.backends.tensorrt.values import (
    DTYPES,
    HALVES,
    Array,
    content_key,
    leaf_types,
    mask,
    rounded,
)

TrtTensor: TypeAlias = Any
"""A ``tensorrt.ITensor``."""

Converted: TypeAlias = "TrtTensor | list[TrtTensor]"
Converter: TypeAlias = "Callable[[NetworkWriter, relax.Call], Converted]"
Item: TypeAlias = "TrtTensor | list[Item] | relax.Function"

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


def converts(*names: str) -> Callable[[Converter], Converter]:
    """Decorator: register the converter of Relax operators (their names without ``relax.``)."""

    def register(converter: Converter) -> Converter:
        for name in names:
            CONVERTERS[f"relax.{name}"] = converter
        return converter

    return register


class NetworkWriter:
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

    def __init__(
        self, package: Package, network: Any, logger: Any, options: TensorrtOptions, symbol: str
    ) -> None:
        self.trt: Any = package.module
        self.network = network
        self.symbol = symbol
        self._logger = logger
        self._half = "float16" if options.use_fp16 else "bfloat16" if options.use_bf16 else ""
        self._environment: dict[relax.Var, Item] = {}
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
        for index, parameter in enumerate(function.params):
            shape = tensor_shape(parameter)
            if shape is None:
                raise self.error(f"input {index} is no static tensor: {parameter.ty}")
            tensor = self.network.add_input(
                f"input{index}", self._io_dtype(tensor_dtype(parameter)), shape
            )
            self._check(tensor, f"input {index}")
            self._environment[parameter] = self.cast(tensor, tensor_dtype(parameter))
        outputs = flatten(self._body(function))
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

    def error(self, text: str) -> RefusalError:
        """A typed error that names the partition."""
        return RefusalError(self.symbol, text)

    def output(self, layer: Any, what: str, index: int = 0) -> TrtTensor:
        """A layer's output.

        Raises
        ------
        RefusalError
            When TensorRT made no layer or gives its output no shape; has TensorRT's reason.
        """
        self._check(layer, what)
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

    def tensor(self, expr: relax.Expr) -> TrtTensor:
        """The tensor an argument stands for."""
        item = self.item(expr)
        if isinstance(item, list | relax.Function):
            raise self.error(f"expected a tensor, found {type(item).__name__}")
        return item

    def tensors(self, expr: relax.Expr) -> list[TrtTensor]:
        """The tensors of a tuple argument."""
        item = self.item(expr)
        return flatten(item)

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
        self._check(layer, "reshape")
        layer.reshape_dims = tuple(shape)
        return self.output(layer, "reshape")

    def permute(self, tensor: TrtTensor, order: Sequence[int]) -> TrtTensor:
        """A tensor with its axes in another order; unchanged where they are in it."""
        if list(order) == list(range(len(order))):
            return tensor
        layer = self.network.add_shuffle(tensor)
        self._check(layer, "permute")
        layer.first_transpose = tuple(order)
        return self.output(layer, "permute")

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

    def activation(self, kind: str, x: TrtTensor, **values: float) -> TrtTensor:
        """An ``ActivationType`` with its ``alpha`` and ``beta``."""
        layer = self.network.add_activation(x, getattr(self.trt.ActivationType, kind))
        self._check(layer, kind)
        for name, value in values.items():
            setattr(layer, name, value)
        return self.output(layer, kind)

    def reduce(self, kind: str, x: TrtTensor, axes: Sequence[int], keepdims: bool) -> TrtTensor:
        """A ``ReduceOperation`` over axes."""
        operation = getattr(self.trt.ReduceOperation, kind)
        return self.output(self.network.add_reduce(x, operation, mask(axes), keepdims), kind)

    # The walk.

    def item(self, expr: relax.Expr) -> Item:
        """What any expression in argument position stands for."""
        match expr:
            case relax.Var():
                return self._environment[expr]
            case tvm.ir.GenericConst():
                array = self.array(expr)
                assert array is not None
                return self.constant(array)
            case relax.Tuple():
                return [self.item(field) for field in expr.fields]
            case relax.TupleGetItem():
                fields = self.item(expr.tuple_value)
                assert isinstance(fields, list)
                return fields[int(expr.index)]
            case relax.Function():
                return expr
            case relax.Call():
                return self._call(expr)
        raise self.error(f"unexpected expression {type(expr).__name__}")

    def _body(self, function: relax.Function) -> Item:
        body = function.body
        if not isinstance(body, relax.SeqExpr):
            return self.item(body)
        for block in body.blocks:
            for binding in block.bindings:
                self._environment[binding.var] = self.item(binding.value)
        return self.item(body.body)

    def _call(self, call: relax.Call) -> Item:
        if isinstance(call.op, relax.Var | relax.Function):
            composite = self.item(call.op)
            assert isinstance(composite, relax.Function)
            for parameter, argument in zip(composite.params, call.args, strict=True):
                self._environment[parameter] = self.item(argument)
            return self._body(composite)
        name = str(getattr(call.op, "name", call.op))
        if name not in CONVERTERS:
            raise self.error(f"operator {name} is not supported")
        result = CONVERTERS[name](self, call)
        for tensor, ty in zip(flatten(result), leaf_types(call.ty), strict=True):
            self._hold_to(tensor, ty, name)
        return result

    def _hold_to(self, tensor: TrtTensor, ty: relax.TensorType, name: str) -> None:
        """A converter must give what Relax says; a difference would be silent otherwise."""
        wanted = tuple(int(extent) for extent in ty.shape)
        given = tuple(tensor.shape)
        if given != wanted:
            # TensorRT finds contradictions when it infers shapes, and then logs them.
            reason = logged_reason(self._logger) if len(given) != len(wanted) else ""
            raise self.error(f"{name} gives shape {given}, not {wanted}; {reason}".rstrip("; "))
        dtype = self.dtype(str(ty.dtype))
        if tensor.dtype != dtype:
            raise self.error(f"{name} gives dtype {tensor.dtype}, not {dtype}")


def flatten(item: Item) -> list[TrtTensor]:
    """The tensors of a nested tuple, in order."""
    if isinstance(item, list):
        return [tensor for field in item for tensor in flatten(field)]
    return [item]
