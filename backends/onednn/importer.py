"""From a Relax partition function to a flat :class:`~collage.backends.onednn.graph.Graph`.

Composite functions are inlined; every operator becomes one or a few nodes. Nothing is fused here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tvm
from tvm import relax

from collage.backends.errors import CodegenError
from collage.backends.onednn.graph import Graph, Node, OpKind, Source, Tensor
from collage.backends.patterns import tensor_dtype, tensor_shape

Item: TypeAlias = "Tensor | list[Item] | relax.Function"
"""What a Relax variable stands for: a tensor, a tuple, or a composite function."""

Handler = Callable[["Importer", relax.Call], "Tensor | list[Tensor]"]

HANDLERS: dict[str, Handler] = {}
"""Importers by Relax operator; filled by ``operators_*.py`` through :func:`handles`."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Decorator: register the importer of Relax operators (their names without ``relax.``)."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[f"relax.{name}"] = handler
        return handler

    return register


class Importer:
    """Walks one partition function; ``graph`` is the result."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.graph = Graph()
        self._environment: dict[relax.Var, Item] = {}
        self._constants: dict[tvm.ir.GenericConst, Tensor] = {}

    def run(self, function: relax.Function) -> Graph:
        """Import the partition's function; its parameters become the graph's inputs."""
        for index, parameter in enumerate(function.params):
            shape = tensor_shape(parameter)
            if shape is None or tensor_dtype(parameter) != "float32":
                raise self.error(f"parameter {index} is no static float32 tensor: {parameter.ty}")
            tensor = Tensor(shape, Source.INPUT, index)
            self.graph.inputs.append(tensor)
            self._environment[parameter] = tensor
        self.graph.outputs = flatten(self._body(function))
        return self.graph

    def error(self, text: str) -> CodegenError:
        """A typed error that names the partition."""
        return CodegenError(f"onednn cannot compile '{self.symbol}': {text}", value=self.symbol)

    def tensor(self, expr: relax.Expr) -> Tensor:
        """The tensor an argument stands for."""
        item = self.item(expr)
        if not isinstance(item, Tensor):
            raise self.error(f"expected a tensor, found {type(item).__name__}")
        return item

    def shape(self, call: relax.Call) -> tuple[int, ...]:
        """Static shape of a call's result."""
        shape = tensor_shape(call)
        if shape is None:
            raise self.error(f"{call.op} has no static shape")
        return shape

    def add(
        self,
        kind: OpKind,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> Tensor:
        """Append a node to the graph."""
        return self.graph.add(kind, inputs, shape, ints, floats)

    def producer(self, tensor: Tensor) -> Node | None:
        """The node that computes a tensor."""
        return next((n for n in reversed(self.graph.nodes) if n.output is tensor), None)

    def item(self, expr: relax.Expr) -> Item:
        """What any expression in argument position stands for."""
        match expr:
            case relax.Var():
                return self._environment[expr]
            case tvm.ir.GenericConst():
                if expr not in self._constants:
                    if tensor_dtype(expr) != "float32":
                        raise self.error(f"a constant has dtype {tensor_dtype(expr)}")
                    self._constants[expr] = Tensor.constant(np.asarray(expr.value.numpy()))
                return self._constants[expr]
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
        if name not in HANDLERS:
            raise self.error(f"operator {name} is not supported")
        result = HANDLERS[name](self, call)
        if isinstance(result, Tensor) and result.shape != self.shape(call):
            raise self.error(f"{name} gives {result.shape}, not {self.shape(call)}")
        return list(result) if isinstance(result, list) else result


def flatten(item: Item) -> list[Tensor]:
    """The tensors of a nested tuple, in order."""
    if isinstance(item, Tensor):
        return [item]
    assert isinstance(item, list)
    return [tensor for field in item for tensor in flatten(field)]


def import_function(function: relax.Function) -> Graph:
    """Import a partition function.

    Raises
    ------
    CodegenError
        When it holds something that this backend does not run.
    """
    return Importer(str(function.attrs["global_symbol"])).run(function)
