"""Reading a partition function: which product, of which arguments."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.cublas.options import CublasOptions
from collage.backends.cublas.patterns import kinds, product_of
from collage.backends.cublas.problem import Problem
from collage.backends.relax.partitions.composites import CompositeCall, compiling

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
    options : CublasOptions
        The target's.

    Returns
    -------
    Partition
        With the positions of its arguments.

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

    has = kind.epilogue
    stages = {"activation": has.activation, "permuted": True}
    stages |= {"residual": has.residual, "bias": has.bias}
    core, joined = composite.take_apart(kind.core, [stage for stage, on in stages.items() if on])
    lhs, rhs = (composite.resolve(arg) for arg in core.args)
    with compiling("cublas", symbol):
        product = product_of(kind, (lhs, rhs), composite.root, options)
    left, right = (call.position(composite.unpermuted(operand)) for operand in (lhs, rhs))
    bias, residual = (
        call.position(joined[name]) if name in joined else NO_ARGUMENT
        for name in ("bias", "residual")
    )
    a, b = (left, right) if product.lhs_is_a else (right, left)
    return Partition(symbol, product.problem, a, b, bias, residual, len(function.params) + 1)
