"""A graph of one operator, and how to make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[..., relax.Expr]


@dataclass(frozen=True)
class Operator:
    """A graph of one operator.

    Attributes
    ----------
    name : str
        Of the operator, and of the variant where there are several.
    inputs : tuple of (shape, dtype)
        Where the type is empty, it is the one that is tried.
    body : callable
        ``body(emit, x0, x1, ...)`` gives the result.
    highest : int
        Integer inputs are below this.
    """

    name: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    body: Body
    highest: int = 4

    def module(self, dtype: str) -> tvm.IRModule:
        """The graph over one type of floats."""
        params = [
            relax.Var(f"x{i}", relax.TensorType(shape, kind or dtype))
            for i, (shape, kind) in enumerate(self.inputs)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(self.body(builder.emit, *params))
            builder.emit_func_output(result)
        return builder.get()

    def arrays(self, dtype: str, random: np.random.Generator) -> list[Any]:
        """Inputs: floats between a half and one, so that every function has a value there."""
        found = []
        for shape, kind in self.inputs:
            if (kind or dtype).startswith(("int", "uint")):
                values = random.integers(0, self.highest, shape)
            elif kind == "bool":
                values = random.integers(0, 2, shape)
            else:
                values = random.uniform(0.5, 1.0, shape)
            found.append(np.asarray(values).astype(kind or dtype))
        return found


def of(name: str, shapes: Sequence[tuple[int, ...]], body: Body, **more: Any) -> Operator:
    return Operator(name, tuple((shape, "") for shape in shapes), body, **more)


def call(function: Any, *more: Any, **named: Any) -> Body:
    return lambda emit, *x: function(*x, *more, **named)


def constant(values: Any, dtype: str) -> relax.Expr:
    return relax.const(np.asarray(values, dtype), dtype)
