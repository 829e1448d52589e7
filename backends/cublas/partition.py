"""Reading a partition function: which product, of which arguments."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import CodegenError, UnsupportedProblemError
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.patterns import kinds, product_of
from collage.backends.cublas.problem import Problem
from collage.backends.relax.composites import CompositeCall
from collage.backends.relax.patterns import permutation

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
    call = CompositeCall.of(function, "cublas")
    composite, symbol, name = call.composite, call.symbol, call.composite.name
    if name not in kinds():
        raise CodegenError(f"'{symbol}' holds '{name}', which cublas does not know", value=name)
    kind = kinds()[name]

    def position(expr: relax.Expr) -> int:
        expr = composite.resolve(expr)
        return call.position(expr if permutation(expr) is None else expr.args[0])

    root = at = composite.root
    bias = residual = NO_ARGUMENT
    if kind.epilogue.activation or permutation(root) is not None:
        at = composite.resolve(at.args[0])
    if kind.epilogue.residual:
        at, addend = composite.computed_and_other(at)
        residual = position(addend)
    if kind.epilogue.bias:
        at, addend = composite.computed_and_other(at)
        bias = position(addend)
    if not isinstance(at, relax.Call) or at.op.name != kind.core:
        raise CodegenError(f"'{symbol}': no {kind.core} where expected: {at}", value=symbol)
    operands = (composite.resolve(at.args[0]), composite.resolve(at.args[1]))
    try:
        product = product_of(kind, operands, root, options)
    except UnsupportedProblemError as err:
        raise CodegenError(f"cublas cannot compile '{symbol}': {err}", value=symbol) from err
    left, right = (position(operand) for operand in operands)
    a, b = (left, right) if product.lhs_is_a else (right, left)
    return Partition(symbol, product.problem, a, b, bias, residual, len(function.params) + 1)
