"""Reading a partition function: which product, of what, with which epilogue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from collage.backends.contract.errors import CodegenError
from collage.backends.relax.calls.strided_views import View, operand_view, result_view
from collage.backends.relax.partitions.composites import CompositeCall

_ACTIVATION_OPS = {
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
    call = CompositeCall.of(function, "openblas")
    composite, symbol = call.composite, call.symbol

    def source(expr: relax.Expr) -> Source:
        view, stored = operand_view(composite.resolve(expr)), composite.unpermuted(expr)
        origin = call.outside(stored)
        if isinstance(origin, tvm.ir.GenericConst):
            return Source(view, constant=origin.value.numpy())
        return Source(view, argument=call.position(stored))

    root = composite.root
    activation = _ACTIVATION_OPS.get(root.op.name, "none")
    stages = {"activation": activation != "none", "bias": "_bias" in composite.name}
    product, joined = composite.take_apart(
        "relax.matmul", [*(stage for stage, on in stages.items() if on), "permuted"]
    )
    bias = source(joined["bias"]).constant if joined else None
    if joined and bias is None:
        raise CodegenError(f"'{symbol}': the bias is not a constant", value=symbol)
    lhs, rhs = map(source, product.args)
    return Partition(symbol, len(function.params), lhs, rhs, result_view(root), bias, activation)
