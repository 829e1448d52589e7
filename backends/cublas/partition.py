"""Reading a partition function: which product, of which arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.patterns import kinds, permutation, product_of
from collage.backends.cublas.problem import Problem, UnsupportedProblemError
from collage.backends.errors import CodegenError

NO_ARGUMENT = -1


@dataclass(frozen=True)
class Partition:
    """A product and the positions of its operands among the entry's arguments.

    Attributes
    ----------
    a, b : int
        cublasLt's A and B.
    bias, residual : int
        ``NO_ARGUMENT`` where there is none.
    num_arguments : int
        The result, last, included.
    """

    symbol: str
    problem: Problem
    a: int
    b: int
    bias: int
    residual: int
    num_arguments: int


def read_partition(function: relax.Function, options: CublasOptions) -> Partition:
    """Read a ``Codegen`` function that holds one composite.

    Parameters
    ----------
    function : relax.Function
        Its constants have become parameters.

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
            f"'{symbol}' holds {len(composites)} composites; cublas takes one", value=symbol
        )
    composite = composites[0]
    name = str(composite.attrs["Composite"])
    if name not in kinds():
        raise CodegenError(f"'{symbol}' holds '{name}', which cublas does not know", value=name)
    kind = kinds()[name]
    inner = _bindings(composite)
    call = _resolve(function.body.body, outer)
    passed = dict(zip(composite.params, call.args, strict=True))

    def position(expr: relax.Expr) -> int:
        expr = _resolve(expr, inner)
        if permutation(expr) is not None:
            expr = _resolve(expr.args[0], inner)
        argument = _resolve(passed.get(expr, expr), outer)
        for index, param in enumerate(function.params):
            if param.same_as(argument):
                return index
        raise CodegenError(f"'{symbol}': an operand is no argument: {argument}", value=symbol)

    def step_in(at: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
        """The operand of an addition that goes on towards the product, and the other."""
        left, right = (_resolve(arg, inner) for arg in at.args)
        return (left, right) if isinstance(left, relax.Call) else (right, left)

    root = at = _resolve(composite.body.body, inner)
    bias = residual = NO_ARGUMENT
    if kind.epilogue.activation or permutation(root) is not None:
        at = _resolve(at.args[0], inner)
    if kind.epilogue.residual:
        at, addend = step_in(at)
        residual = position(addend)
    if kind.epilogue.bias:
        at, addend = step_in(at)
        bias = position(addend)
    if not isinstance(at, relax.Call) or at.op.name != kind.core:
        raise CodegenError(f"'{symbol}': no {kind.core} where expected: {at}", value=symbol)
    operands = (_resolve(at.args[0], inner), _resolve(at.args[1], inner))
    try:
        product = product_of(kind, operands, root, options)
    except UnsupportedProblemError as err:
        raise CodegenError(f"cublas cannot compile '{symbol}': {err}", value=symbol) from err
    left, right = (position(operand) for operand in operands)
    a, b = (left, right) if product.lhs_is_a else (right, left)
    return Partition(symbol, product.problem, a, b, bias, residual, len(function.params) + 1)


def _bindings(function: relax.Function) -> dict[relax.Var, relax.Expr]:
    return {b.var: b.value for block in function.body.blocks for b in block.bindings}


def _resolve(expr: relax.Expr, bindings: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    while isinstance(expr, relax.Var) and expr in bindings:
        expr = bindings[expr]
    return expr
