"""Running sums, products, extremes and sums of exponentials on a GPU.

TVM's scans go through a line one element after the other, or in several kernels with float32
tensors between them. Here a block has a few lines at once; a line that is long while there are few
is cut into chunks, with two kernels: the first one finds what each chunk has in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from collage.backends.relax.kept_whole.running import RunningExtreme
from collage.backends.relax.static_shape import static_shape, tensor_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cuda.functions import Launch, call_kernels
from collage.backends.tvm.cuda.rows.lines import WARP, Lines, Share

_WIDE = {
    **dict.fromkeys(["float16", "bfloat16", "float32"], "float"),
    "float64": "double",
    **dict.fromkeys(["bool", "int8", "int16", "int32", "uint8", "uint16"], "int"),
    **dict.fromkeys(["int64", "uint32"], "long long"),
}
"""What results of a type are computed in."""

_OPERATORS = {"relax.cumsum": "Sum", "relax.cumprod": "Product"}


def scanned(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr | None:
    """Sums or products of all up to each place of an axis.

    Parameters
    ----------
    builder, call
        What takes the program, and a ``relax.cumsum`` or ``relax.cumprod``.
    x : relax.Expr
        The operand.

    Returns
    -------
    relax.Expr or None
        A call of the program; None where the type or the shape is not one of ours.
    """
    shape, kind = tensor_shape(call.args[0]), str(call.ty.dtype)
    if not shape or not math.prod(shape) or {kind, str(call.args[0].ty.dtype)} - {*_WIDE}:
        return None
    axis = call.attrs.axis
    lines = Lines.along((math.prod(shape),), 0)
    if axis is not None:
        lines = Lines.along(shape, int(axis) % len(shape))
    operator = f"{_OPERATORS[str(call.op.name)]}<{_WIDE[kind]}>"
    results = [(static_shape(call), kind)]
    return _call(builder, x, lines, operator, results, exclusive=bool(call.attrs.exclusive))


def legalize_running_extreme(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Extremes of all up to each place of an axis, and where they were last.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program, or the operator's steps where it has not the type.
    """
    (x,), one = call.args, RunningExtreme.of(call)
    shape, kind = static_shape(x), str(x.ty.dtype)
    if not math.prod(shape) or kind not in _WIDE:
        return default_legalization(builder, call)
    operator = f"Extreme<{_WIDE[kind]}, {str(one.largest).lower()}>"
    results = [(shape, kind), (shape, "int64")]
    return _call(builder, x, Lines.along(shape, one.axis), operator, results)


def legalize_running_logsumexp(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Logarithms of sums of exponentials of all up to each place of an axis.

    Parameters
    ----------
    builder, call
        What takes the program, and a call of the operator.

    Returns
    -------
    relax.Expr
        A call of the program, or the operator's steps where there is nothing.
    """
    (x,), axis = call.args, int(call.attrs["axis"])
    shape, kind = static_shape(x), str(x.ty.dtype)
    if not math.prod(shape):
        return default_legalization(builder, call)
    lines = Lines.along(shape, axis)
    return _call(builder, x, lines, f"Exponentials<{_WIDE[kind]}>", [(shape, kind)])


def _call(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    lines: Lines,
    operator: str,
    results: Sequence[tuple[Sequence[int], str]],
    *,
    exclusive: bool = False,
) -> relax.Expr:
    share = Share.of(lines)
    groups = share.groups(lines)
    chunk = math.ceil(lines.length / share.chunks)
    operator = f"collage::{operator}"
    across = str(lines.step > 1).lower()
    sizes = (lines.count, lines.length, lines.step, chunk)
    flags = (across, str(share.joint).lower(), str(exclusive).lower())
    parameters = ", ".join([operator, str(share.columns), str(share.items), *flags])
    given = [(tuple(shape), kind) for shape, kind in results]
    # Of lines that are whole nobody reads what chunks have.
    chunks = 0 if share.chunks == 1 else 1 + len(results)
    launches = []
    if share.chunks > 1:
        # Two words for each state, at most.
        given.append(((share.chunks * lines.count * 2,), "int64"))
        reduced = ", ".join([operator, str(share.columns), str(share.items), across])
        launches.append(
            Launch(
                share.chunks * groups,
                share.warps * WARP,
                f"collage::scan_chunks<{reduced}>",
                (0, chunks),
                (*sizes, groups),
            )
        )
    launches.append(
        Launch(
            share.chunks * groups,
            share.warps * WARP,
            f"collage::scan<{parameters}>",
            (0, chunks, 1, len(results)),
            (*sizes, groups),
        )
    )
    found = call_kernels(builder, "running", [x], given, launches)
    if share.chunks == 1:
        return found
    pair = builder.emit(found)
    parts = [relax.TupleGetItem(pair, place) for place in range(len(results))]
    return parts[0] if len(parts) == 1 else relax.Tuple(parts)
