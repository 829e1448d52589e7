"""ONNX ``Sum``, ``Max``, ``Min`` and ``Mean`` of several tensors become chains of two.

The importer broadcasts all operands, stacks them on a new axis and reduces over it.
"""

from __future__ import annotations

from functools import reduce

from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import (
    RESHAPES,
    Rules,
    Scope,
    dtype_of,
    is_tensor,
    make_constant,
    op_name,
    reshape,
)

_BINARY = {
    "sum": relax.op.add,
    "mean": relax.op.add,
    "max": relax.op.maximum,
    "min": relax.op.minimum,
}


def _unstack_reduction(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """``sum(stack(a, b, c), axis)`` is ``a + b + c``."""
    axis = _only_axis(call)
    if axis is None or not is_tensor(call):
        return None
    operands = _stacked(scope, call.args[0], axis)
    if operands is None:
        return None
    binary = _BINARY[op_name(call)]
    total = reduce(lambda a, b: scope.emit(binary(a, b)), operands)
    if op_name(call) == "mean":
        share = make_constant(1.0 / len(operands), dtype_of(call))
        total = scope.emit(relax.op.multiply(total, share))
    return (
        total if static_shape(total) == static_shape(call) else reshape(total, static_shape(call))
    )


def _only_axis(call: relax.Call) -> int | None:
    axes = call.attrs.axis
    if axes is None or len(axes) != 1:
        return None
    return int(axes[0]) % len(static_shape(call.args[0]))


def _stacked(scope: Scope, expr: relax.Expr, axis: int) -> list[relax.Expr] | None:
    """The tensors that were stacked along ``axis``, as ``stack`` or as ``concat`` of reshapes."""
    call = scope.call(expr, "stack", "concat")
    if call is None or int(call.attrs.axis) % len(static_shape(expr)) != axis:
        return None
    fields = scope.definition(call.args[0])
    if not isinstance(fields, relax.Tuple):
        return None
    if op_name(call) == "stack":
        return list(fields.fields)
    shape = static_shape(expr)
    inner = shape[:axis] + shape[axis + 1 :]
    operands = []
    for field in fields.fields:
        if static_shape(field)[axis] != 1:
            return None
        source = scope.call(field, *RESHAPES)
        if source is not None and static_shape(source.args[0]) == inner:
            operands.append(source.args[0])
        else:
            operands.append(scope.emit(reshape(field, inner)))
    return operands


RULES: Rules = dict.fromkeys(_BINARY, (_unstack_reduction,))
