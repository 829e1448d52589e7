"""Norms over groups of channels: sums in one pass, then one scale and one shift per channel.

TVM's own takes a square root and a division for each element.
"""

from __future__ import annotations

import math

from tvm import relax, te, tirx

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import OUT_FUSABLE, default_legalization


def legalize_group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A float32 group norm, its channels on axis 1; TVM's own for all else.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Makes the tensor program.
    call : relax.Call
        A group norm.
    """
    shape, attrs = tensor_shape(call.args[0]), call.attrs
    rank = len(shape or ())
    axes = sorted(int(axis) % rank for axis in attrs.axes) if rank else []
    # In some modules the channels are among the axes, in others not.
    covered = axes in (list(range(2, rank)), list(range(1, rank)))
    wide = all(str(arg.ty.dtype) == "float32" for arg in call.args)
    if shape is None or not covered or not wide or int(attrs.channel_axis) % rank != 1:
        return default_legalization(builder, call)
    groups, epsilon = int(attrs.num_groups), float(attrs.epsilon)
    return builder.call_te(
        lambda x, gamma, beta: _group_norm(x, gamma, beta, shape, groups, epsilon),
        *call.args,
        primfunc_name_hint="group_norm",
        primfunc_attrs=OUT_FUSABLE,
    )


def _group_norm(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    shape: tuple[int, ...],
    groups: int,
    epsilon: float,
) -> te.Tensor:
    batch, channels, *space = shape
    each = channels // groups
    count = float(each * math.prod(space))
    over = [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate([each, *space])]
    add = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda *types: tuple(tirx.const(0.0, dtype) for dtype in types),
        name="sums",
    )

    def sums(n: tirx.Var, g: tirx.Var) -> object:
        value = x[(n, g * each + over[0], *over[1:])]
        return add((value, value * value), axis=over)

    total, squares = te.compute((batch, groups), sums, name="sums")

    def scale_of(n: tirx.Var, c: tirx.Var) -> object:
        g = tirx.floordiv(c, each)
        mean = total[n, g] / count
        return gamma[c] * tirx.rsqrt(squares[n, g] / count - mean * mean + epsilon)

    scale = te.compute((batch, channels), scale_of, name="scale")
    shift = te.compute(
        (batch, channels),
        lambda n, c: beta[c] - total[n, tirx.floordiv(c, each)] / count * scale[n, c],
        name="shift",
    )
    return te.compute(
        shape, lambda n, c, *p: x[(n, c, *p)] * scale[n, c] + shift[n, c], name="normalized"
    )
