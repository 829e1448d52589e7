"""Reading a partition function: which product, of what, with which epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from collage.backends.errors import CodegenError
from collage.backends.openblas.patterns import operand_view, permutation, result_view
from collage.backends.openblas.problem import View

ACTIVATION_OPS = {
    "relax.nn.relu": "relu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.tanh": "tanh",
    "relax.sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class Source:
    """An operand: an argument of the partition, or a constant; and how it is viewed."""

    view: View
    argument: int = -1
    constant: np.ndarray | None = None


@dataclass(frozen=True)
class Partition:
    """``activation(lhs @ rhs + bias)``, written through ``result``.

    Attributes
    ----------
    result : View or None
        Where the product goes, in its own axes, when a ``permute_dims`` follows it.
    """

    symbol: str
    num_inputs: int
    lhs: Source
    rhs: Source
    result: View | None
    bias: np.ndarray | None
    activation: str


def read_partition(function: relax.Function) -> Partition:
    """Read a ``Codegen`` function that holds one composite.

    Raises
    ------
    CodegenError
        When the function is not what this backend's patterns match.
    """
    symbol = str(function.attrs["global_symbol"])
    outer = _bindings(function)
    composites = [v for v in outer.values() if isinstance(v, relax.Function)]
    if len(composites) != 1:
        raise CodegenError(
            f"'{symbol}' holds {len(composites)} composites; openblas takes one", value=symbol
        )
    call = _resolve(function.body.body, outer)
    inner = _bindings(composites[0])
    arguments = dict(zip(composites[0].params, call.args, strict=True))

    def source(expr: relax.Expr) -> Source:
        expr = _resolve(expr, inner)
        view = operand_view(expr)
        origin = expr if permutation(expr) is None else _resolve(expr.args[0], inner)
        origin = _resolve(arguments.get(origin, origin), outer)
        if isinstance(origin, tvm.ir.GenericConst):
            return Source(view, constant=origin.value.numpy())
        for index, param in enumerate(function.params):
            if param.same_as(origin):
                return Source(view, argument=index)
        raise CodegenError(f"'{symbol}': an operand is computed inside it", value=symbol)

    root = at = _resolve(composites[0].body.body, inner)
    activation, bias = "none", None
    if at.op.name in ACTIVATION_OPS:
        activation = ACTIVATION_OPS[at.op.name]
        at = _resolve(at.args[0], inner)
    if at.op.name == "relax.add":
        left, right = (_resolve(arg, inner) for arg in at.args)
        at, addend = (left, right) if isinstance(left, relax.Call) else (right, left)
        bias = source(addend).constant
        if bias is None:
            raise CodegenError(f"'{symbol}': the bias is not a constant", value=symbol)
    if permutation(at) is not None:
        at = _resolve(at.args[0], inner)
    if not isinstance(at, relax.Call) or at.op.name != "relax.matmul":
        raise CodegenError(f"'{symbol}': no matrix product where expected: {at}", value=symbol)
    return Partition(
        symbol,
        len(function.params),
        source(at.args[0]),
        source(at.args[1]),
        result_view(root),
        bias,
        activation,
    )


def _bindings(function: relax.Function) -> dict[relax.Var, relax.Expr]:
    return {b.var: b.value for block in function.body.blocks for b in block.bindings}


def _resolve(expr: relax.Expr, bindings: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    while isinstance(expr, relax.Var) and expr in bindings:
        expr = bindings[expr]
    return expr
