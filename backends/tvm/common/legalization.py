"""What legalizations for a CPU and for a GPU have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.ir import Op

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""Expresses a call of an operator by tensor programs."""

OUT_FUSABLE = {"op_pattern": 4}
"""``kOutEWiseFusable`` of ``relax::OpPatternKind``: elementwise operators may be fused behind."""


def default_legalization(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """What TVM itself does with an operator.

    Parameters
    ----------
    builder, call
        What takes the tensor programs, and a call of the operator.

    Returns
    -------
    relax.Expr
        Mostly a call of one tensor program.
    """
    assert isinstance(call.op, Op)
    legalize: Legalization = call.op.get_attr("FLegalize")
    return legalize(builder, call)


def reshaped(builder: relax.BlockBuilder, data: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    """The same elements in another shape, as a tensor program.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes it.
    data : relax.Expr
        Of as many elements.
    shape : sequence of int
        Of the result.

    Returns
    -------
    relax.Expr
        A call of the program.
    """
    return default_legalization(
        builder, builder.normalize(relax.op.reshape(data, relax.ShapeExpr(list(shape))))
    )


def broadcast_index(index: Sequence[Any], shape: Sequence[Any]) -> list[Any]:
    """An operand's index under NumPy's broadcasting.

    Parameters
    ----------
    index : sequence
        Of the result.
    shape : sequence
        Of the operand: it has the result's last axes, the first place where there is only one.

    Returns
    -------
    list[Any]
        As long as the operand's shape.
    """
    dims = [int(dim) for dim in shape]
    own = index[len(index) - len(dims) :]
    return [0 if dim == 1 else i for dim, i in zip(dims, own, strict=True)]
