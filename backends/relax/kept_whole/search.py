"""Places in sorted rows as an operator: ``collage.searchsorted(sequence, values)``.

How many of a sorted row come before each value. A row is for all values, or each row of values has
its own. Before what is no number come all.
"""

from __future__ import annotations

from tvm import ir, relax
from tvm.relax import op

from collage.backends.relax.own_operators import make_known
from collage.backends.relax.static_shape import static_shape

NAME = "collage.searchsorted"


def searchsorted(
    sequence: relax.Expr, values: relax.Expr, *, right: bool, dtype: str
) -> relax.Call:
    """A call of the operator.

    Parameters
    ----------
    sequence, values : relax.Expr
        Of one type; all axes but the last are the same, unless the sequence has one alone.
    right : bool
        Whether those that are equal come before, too.
    dtype : str
        Of the result, ``int32`` or ``int64``.

    Returns
    -------
    relax.Call
        Shaped as the values; its type is not inferred yet.
    """
    attrs = ir.make_node("ir.DictAttrs", right=right, dtype=dtype)
    return relax.Call(ir.Op.get(NAME), [sequence, values], attrs, [])


def _infer(call: relax.Call, _: relax.BlockBuilder) -> relax.Type:
    return relax.TensorType(static_shape(call.args[1]), str(call.attrs["dtype"]))


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """All are compared with all."""
    (sequence, values), emit = call.args, builder.emit
    rows, asked = static_shape(sequence), static_shape(values)
    if not rows[-1]:
        return op.zeros(asked, str(call.attrs["dtype"]))
    wide = [1] * len(asked) + [*rows] if len(rows) == 1 else [*rows[:-1], 1, rows[-1]]
    sequence = emit(op.reshape(sequence, wide))
    values = emit(op.reshape(values, [*asked, 1]))
    behind = op.greater if call.attrs["right"] else op.greater_equal
    before = emit(op.logical_not(emit(behind(sequence, values))))
    return op.sum(emit(op.astype(before, str(call.attrs["dtype"]))), [-1])


make_known(NAME, "How many of a sorted row come before each value.", _infer, _legalize)
