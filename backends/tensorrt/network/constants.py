"""Constants of a TensorRT network, each bound once, and what is said where TensorRT refuses."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.relax.constant_data import constant_data
from collage.backends.tensorrt.library import Package, logged_reason
from collage.backends.tensorrt.network.values import DTYPES, HALVES, Array, content_key, rounded
from collage.backends.tensorrt.options import TensorrtOptions

TrtTensor: TypeAlias = Any
"""A ``tensorrt.ITensor``."""


class RefusalError(CodegenError):
    """TensorRT, or this converter, does not take a region.

    Parameters
    ----------
    symbol : str
        The partition's.
    reason : str
        TensorRT's own words where it has said something; kept as an attribute.
    """

    def __init__(self, symbol: str, reason: str) -> None:
        super().__init__(f"tensorrt cannot compile '{symbol}': {reason}", value=symbol)
        self.reason = reason


class ConstantWriter:
    """Adds constants to a network.

    Parameters
    ----------
    package : Package
        The installed TensorRT.
    network : tensorrt.INetworkDefinition
        Strongly typed and empty.
    logger : ILogger
        For the reasons of refusals.
    options : TensorrtOptions
        Their precision is that inside the region.
    symbol : str
        The partition's, for errors.

    Attributes
    ----------
    trt : module
        The Python package.
    """

    def __init__(
        self, package: Package, network: Any, logger: Any, options: TensorrtOptions, symbol: str
    ) -> None:
        self.symbol = symbol
        self.trt: Any = package.module
        self.network = network
        self._logger = logger
        self._half = "float16" if options.use_fp16 else "bfloat16" if options.use_bf16 else ""
        self._constants: dict[str, TrtTensor] = {}
        self._weights: dict[str, Any] = {}
        self._kept: list[Array] = []
        """TensorRT reads weights from this memory until the engine is built."""

    def error(self, text: str) -> RefusalError:
        """The error to raise where something cannot be written."""
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

        Returns
        -------
        TrtTensor
            Of shape and dtype as TensorRT infers them from the settings.

        Raises
        ------
        RefusalError
            When TensorRT made no layer; has TensorRT's reason.
        """
        self.require(layer, what)
        for name, value in settings.items():
            setattr(layer, name, value)
        return layer.get_output(index)

    def require(self, made: Any, what: str) -> None:
        """Hold TensorRT to having made something.

        Parameters
        ----------
        made : object
            A layer or a tensor; None where TensorRT refused.
        what : str
            Names it in the error.

        Raises
        ------
        RefusalError
            When it is None; has TensorRT's reason.
        """
        if made is None:
            raise self.error(f"{what}: {logged_reason(self._logger)}")

    def dtype(self, name: str) -> Any:
        """TensorRT's dtype for values of a Relax dtype inside the region."""
        return self.io_dtype(self._half if name == "float32" and self._half else name)

    def io_dtype(self, name: str) -> Any:
        """TensorRT's dtype for values of a Relax dtype where they enter and leave.

        Raises
        ------
        RefusalError
            When it has none.
        """
        if name not in DTYPES:
            raise self.error(f"TensorRT has no dtype {name}")
        return getattr(self.trt.DataType, DTYPES[name])

    def array(self, expr: relax.Expr) -> Array | None:
        """A constant argument's values as they are in the module, or None."""
        return constant_data(expr) if isinstance(expr, tvm.ir.GenericConst) else None

    def weights(self, array: Array, *, exact: bool = False) -> Any:
        """Weights over an array's memory; equal arrays are bound once.

        Parameters
        ----------
        array : ndarray
            Of any dtype that TensorRT has.
        exact : bool
            Keep float32 where the region is in half precision.

        Returns
        -------
        tensorrt.Weights
            They are read when the engine is built; this writer keeps their memory until then.
        """
        rounds = array.dtype == np.float32 and self._half and not exact
        half = HALVES[self._half] if rounds else None
        key = f"{content_key(array)}:{half}"
        if key not in self._weights:
            array = array if half is None else rounded(array, half)
            # Not ascontiguousarray: that would give a scalar one dimension.
            array = np.require(array, requirements="C")
            self._kept.append(array)
            dtype = self.io_dtype(array.dtype.name)
            self._weights[key] = self.trt.Weights(dtype, array.ctypes.data, array.size)
        return self._weights[key]

    def constant(self, array: Array, *, exact: bool = False) -> TrtTensor:
        """A tensor with an array's values; equal arrays are one tensor.

        Parameters
        ----------
        array : ndarray
            Of any dtype that TensorRT has.
        exact : bool
            Keep float32 where the region is computed in half precision.

        Returns
        -------
        TrtTensor
            Of the array's shape; in the region's half precision where the array is float32.
        """
        key = f"{content_key(array)}:{exact}"
        if key not in self._constants:
            layer = self.network.add_constant(array.shape, self.weights(array, exact=exact))
            self._constants[key] = self.output(layer, f"constant of shape {array.shape}")
        return self._constants[key]

    def filled(self, value: float, like: TrtTensor) -> TrtTensor:
        """A constant of one element with the rank and dtype of another tensor.

        Parameters
        ----------
        value : float
            The element.
        like : TrtTensor
            Has the rank and dtype.

        Returns
        -------
        TrtTensor
            It broadcasts to the other tensor.
        """
        name = next(k for k, v in DTYPES.items() if like.dtype == getattr(self.trt.DataType, v))
        dtype = HALVES.get(name) or np.dtype(name)
        return self.constant(np.full([1] * len(like.shape), value, dtype), exact=True)
