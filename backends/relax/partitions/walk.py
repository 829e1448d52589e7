"""Walking through a partition function, its composites included, one operator at a time.

For backends whose regions hold many composites: each tells what becomes of an operator, the walk
knows how Relax binds, nests and passes values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.relax.partitions.composites import resolve

Tensor = TypeVar("Tensor")
"""What a backend makes of a tensor."""

Handler = TypeVar("Handler", bound=Callable[..., Any])

Item: TypeAlias = "Tensor | list[Item[Tensor]] | relax.Function"
"""What a Relax variable stands for: a tensor, a tuple, or a composite function."""


def registration(table: dict[str, Handler]) -> Callable[..., Callable[[Handler], Handler]]:
    """A decorator factory: it files a handler in ``table`` under ``relax.`` and each given name.

    Examples
    --------
    >>> handlers = {}
    >>> handles = registration(handlers)
    >>> @handles("nn.relu", "nn.silu")
    ... def unary(walk, call):
    ...     return walk.tensor(call.args[0])
    >>> list(handlers)
    ['relax.nn.relu', 'relax.nn.silu']
    """

    def registers(*names: str) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            for name in names:
                table[f"relax.{name}"] = handler
            return handler

        return register

    return registers


class PartitionWalk(ABC, Generic[Tensor]):
    """A walk through one partition function.

    Attributes
    ----------
    symbol : str
        The partition's, for messages.

    Examples
    --------
    >>> from collage.testing import graph
    >>> class Text(PartitionWalk[str]):
    ...     handlers = {"relax.nn.relu": lambda walk, call: f"relu({walk.tensor(call.args[0])})"}
    ...     def error(self, text):
    ...         return CodegenError(f"{self.symbol}: {text}")
    ...     def constant_tensor(self, constant):
    ...         return "constant"
    ...     def check(self, call, name, result):
    ...         pass
    >>> mod = graph([(8, 8)], lambda emit, x: relax.op.nn.relu(emit(relax.op.nn.relu(x))))
    >>> Text("main").walk(mod["main"], lambda index, parameter: parameter.name)
    ['relu(relu(x0))']
    """

    handlers: ClassVar[Mapping[str, Callable[[Any, relax.Call], Any]]]
    """By Relax operator: called with the walk and the call, gives a tensor or a list of them."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self._environment: dict[relax.Var, Item[Tensor]] = {}
        self._bound: dict[relax.Var, relax.Expr] = {}

    @abstractmethod
    def error(self, text: str) -> CodegenError:
        """A typed error that names the partition."""

    @abstractmethod
    def constant_tensor(self, constant: tvm.ir.GenericConst) -> Tensor:
        """The tensor of a constant."""

    @abstractmethod
    def check(self, call: relax.Call, name: str, result: Tensor | list[Tensor]) -> None:
        """Hold what a handler gave for an operator to what Relax says of the call.

        Parameters
        ----------
        call : relax.Call
            The operator.
        name : str
            Of the operator, for the error.
        result : Tensor or list of Tensor
            What the handler gave.
        """

    def walk(
        self, function: relax.Function, inputs: Callable[[int, relax.Var], Tensor]
    ) -> list[Tensor]:
        """Walk through the partition function.

        Parameters
        ----------
        function : relax.Function
            A partition of the backend's.
        inputs : callable
            Makes the tensor of a parameter, given its position.

        Returns
        -------
        list
            The tensors of the function's result, in order.

        Raises
        ------
        CodegenError
            As :meth:`error` makes it, where something cannot be handled.
        """
        for index, parameter in enumerate(function.params):
            self._environment[parameter] = inputs(index, parameter)
        return flatten(self._body(function))

    def tensor(self, expr: relax.Expr) -> Tensor:
        """The tensor an argument stands for.

        Raises
        ------
        CodegenError
            When it stands for something else.
        """
        item = self.item(expr)
        if isinstance(item, list | relax.Function):
            raise self.error(f"expected a tensor, found {type(item).__name__}")
        return item

    def tensors(self, expr: relax.Expr) -> list[Tensor]:
        """The tensors of a tuple argument."""
        return flatten(self.item(expr))

    def item(self, expr: relax.Expr) -> Item[Tensor]:
        """What any expression in argument position stands for.

        Raises
        ------
        CodegenError
            When it is no variable, constant, tuple or function.
        """
        match expr:
            case relax.Var():
                return self._environment[expr]
            case tvm.ir.GenericConst():
                return self.constant_tensor(expr)
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

    def resolved(self, expr: relax.Expr) -> relax.Expr:
        """An expression seen through the variables met so far, those of composites included.

        Parameters
        ----------
        expr : relax.Expr
            For operators that depend on what computes their operands.
        """
        return resolve(expr, self._bound)

    def _body(self, function: relax.Function) -> Item[Tensor]:
        body = function.body
        if not isinstance(body, relax.SeqExpr):
            return self.item(body)
        for block in body.blocks:
            for binding in block.bindings:
                self._environment[binding.var] = self.item(binding.value)
                self._bound[binding.var] = binding.value
        return self.item(body.body)

    def _call(self, call: relax.Call) -> Item[Tensor]:
        if isinstance(call.op, relax.Var | relax.Function):
            composite = self.item(call.op)
            assert isinstance(composite, relax.Function)
            for parameter, argument in zip(composite.params, call.args, strict=True):
                self._environment[parameter] = self.item(argument)
                self._bound[parameter] = argument
            return self._body(composite)
        name = str(getattr(call.op, "name", call.op))
        if name not in self.handlers:
            raise self.error(f"operator {name} is not supported")
        result: Tensor | list[Tensor] = self.handlers[name](self, call)
        self.check(call, name, result)
        return list(result) if isinstance(result, list) else result


def flatten(item: Item[Tensor]) -> list[Tensor]:
    """The tensors of a nested tuple, in order.

    Examples
    --------
    >>> flatten(["a", ["b", "c"], "d"])
    ['a', 'b', 'c', 'd']
    """
    if isinstance(item, list):
        return [tensor for field in item for tensor in flatten(field)]
    assert not isinstance(item, relax.Function)
    return [item]
