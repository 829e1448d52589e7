"""Medians on a GPU: the middle one of what is sorted there; TVM's own are sorted by the host."""

from __future__ import annotations

from tvm import relax, topi

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import default_legalization


def legalize_median(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The lower median of an axis and its place, or that of all elements.

    Parameters
    ----------
    builder, call
        What makes the tensor programs, and a ``relax.median``.

    Returns
    -------
    relax.Expr
        The values, and with an axis the places (int64) beside them.
    """

    def emit(expr: relax.Expr) -> relax.Var:
        return builder.emit(default_legalization(builder, builder.normalize(expr)))

    (x,) = call.args
    pair = isinstance(call.ty, relax.TupleType)
    axis = int(call.attrs.axis[0]) % len(static_shape(x)) if call.attrs.axis else 0
    if not call.attrs.axis:
        x = emit(relax.op.reshape(x, [-1]))
    middle = (static_shape(x)[axis] - 1) // 2
    order = builder.emit(builder.call_te(topi.gpu.argsort, x, axis=axis, dtype="int64"))
    place = emit(relax.op.strided_slice(order, [axis], [middle], [middle + 1]))
    found = emit(relax.op.gather_elements(x, place, axis=axis))
    results = call.ty.fields if pair else [call.ty]
    shaped = [
        emit(relax.op.reshape(part, static_shape(wanted)))
        for part, wanted in zip([found, place], results, strict=False)
    ]
    return relax.Tuple(shaped) if pair else shaped[0]
