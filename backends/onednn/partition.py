"""From a Relax partition function to a flat :class:`~collage.backends.onednn.graph.Graph`.

Composite functions are inlined; every operator becomes one or a few nodes. Nothing is fused here.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.onednn.graph import Graph, Source, Tensor
from collage.backends.relax.constant_data import constant_data
from collage.backends.relax.partitions.walk import PartitionWalk, registration
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape

Handler = Callable[["Importer", relax.Call], "Tensor | list[Tensor]"]

HANDLERS: dict[str, Handler] = {}
"""Importers by Relax operator; filled by ``operators/`` through :func:`handles`."""

handles = registration(HANDLERS)
"""Decorator: register the importer of Relax operators (their names without ``relax.``)."""


class Importer(PartitionWalk[Tensor]):
    """Walks one partition function; ``graph`` is the result."""

    handlers = HANDLERS

    def __init__(self, symbol: str) -> None:
        super().__init__(symbol)
        self.graph = Graph()
        self._constants: dict[tvm.ir.GenericConst, Tensor] = {}

    def run(self, function: relax.Function) -> Graph:
        """Import the partition's function; its parameters become the graph's inputs."""
        self.graph.outputs = self.walk(function, self._input)
        return self.graph

    def _input(self, index: int, parameter: relax.Var) -> Tensor:
        shape = tensor_shape(parameter)
        if shape is None or tensor_dtype(parameter) != "float32":
            raise self.error(f"parameter {index} is no static float32 tensor: {parameter.ty}")
        tensor = Tensor(shape, Source.INPUT, index)
        self.graph.inputs.append(tensor)
        return tensor

    def error(self, text: str) -> CodegenError:
        return CodegenError(f"onednn cannot compile '{self.symbol}': {text}", value=self.symbol)

    def constant_tensor(self, constant: tvm.ir.GenericConst) -> Tensor:
        """The tensor of a constant, one for each.

        Raises
        ------
        CodegenError
            When it is neither of float32 nor of int8.
        """
        if constant not in self._constants:
            if tensor_dtype(constant) not in ("float32", "int8"):
                raise self.error(f"a constant has dtype {tensor_dtype(constant)}")
            self._constants[constant] = Tensor.constant(constant_data(constant))
        return self._constants[constant]

    def check(self, call: relax.Call, name: str, result: Tensor | list[Tensor]) -> None:
        """Hold the shape of a result to that which Relax infers.

        Raises
        ------
        CodegenError
            When the shapes differ.
        """
        if isinstance(result, Tensor) and result.shape != self.shape(call):
            raise self.error(f"{name} gives {result.shape}, not {self.shape(call)}")

    def shape(self, call: relax.Call) -> tuple[int, ...]:
        """Static shape of a call's result.

        Raises
        ------
        CodegenError
            When it is not static.
        """
        shape = tensor_shape(call)
        if shape is None:
            raise self.error(f"{call.op} has no static shape")
        return shape


def import_function(function: relax.Function) -> Graph:
    """Import a partition function.

    Raises
    ------
    CodegenError
        When it holds something that this backend does not run.
    """
    return Importer(str(function.attrs["global_symbol"])).run(function)
