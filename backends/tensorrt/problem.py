"""From a Relax partition function to a TensorRT network: the walk, operator by operator.

Composite functions are walked through, each operator once; every constant is bound where it is
first used, straight from the module's own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tvm
from tvm import relax

from collage.backends.relax.partitions.layers import MOVEMENTS, LayerWalk
from collage.backends.relax.partitions.walk import PartitionWalk, flatten, registration
from collage.backends.relax.static_shape import leaf_types, static_shape, tensor_dtype, tensor_shape
from collage.backends.tensorrt.library import Package, logged_reason
from collage.backends.tensorrt.network.constants import TrtTensor
from collage.backends.tensorrt.network.layers import LayerWriter
from collage.backends.tensorrt.options import TensorrtOptions

Converted: TypeAlias = "TrtTensor | list[TrtTensor]"
Converter: TypeAlias = "Callable[[NetworkWriter, relax.Call], Converted]"

CONVERTERS: dict[str, Converter] = {**MOVEMENTS}
"""By Relax operator; the others filed by ``converters/`` through :func:`converts`."""


converts = registration(CONVERTERS)
"""Decorator: register the converter of Relax operators (their names without ``relax.``)."""


class NetworkWriter(LayerWriter, LayerWalk[TrtTensor]):
    """Writes one partition function into a network; the parameters are those of LayerWriter."""

    handlers = CONVERTERS

    def __init__(
        self, package: Package, network: Any, logger: Any, options: TensorrtOptions, symbol: str
    ) -> None:
        LayerWriter.__init__(self, package, network, logger, options, symbol)
        PartitionWalk.__init__(self, symbol)

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
            wanted = self.io_dtype(str(ty.dtype))
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
        dtype = self.io_dtype(tensor_dtype(parameter))
        tensor = self.network.add_input(f"input{index}", dtype, shape)
        self.require(tensor, f"input {index}")
        return self.cast(tensor, tensor_dtype(parameter))

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
