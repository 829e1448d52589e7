"""Concatenations along rows: which operand an element is of, the loop that it is in decides."""

from __future__ import annotations

from tvm import relax, te, topi

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cpu.schedules import pieces

_MOST_PIECES = 16
"""Each is a loop of its own in the kernel."""

_FEWEST_ELEMENTS = 4
"""Of a row for each of its pieces, on average: loops over one or two take longer than a choice."""


def legalize_concat(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A concatenation along the last axis in pieces; TVM's own along others.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a ``relax.concat``.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    (operands,) = call.args
    fields = list(operands.fields) if isinstance(operands, relax.Tuple) else []
    shapes = [tensor_shape(field) for field in fields]
    axis = call.attrs.axis
    if axis is None or not 2 <= len(fields) <= _MOST_PIECES or not all(shapes):
        return default_legalization(builder, call)
    rank = len(shapes[0] or ())
    lengths = [shape[-1] for shape in shapes if shape]
    long = sum(lengths) >= _FEWEST_ELEMENTS * len(lengths)
    if int(axis) % rank != rank - 1 or 0 in lengths or not long:
        return default_legalization(builder, call)

    def concatenated(*parts: te.Tensor) -> te.Tensor:
        return pieces.in_pieces(topi.concatenate(parts, axis=rank - 1), lengths)

    return builder.call_te(concatenated, *fields, primfunc_name_hint="concatenate")
