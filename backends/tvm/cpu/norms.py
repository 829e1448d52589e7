"""Norms over groups of channels: mean, variance, then one scale and one shift per channel.

TVM's own takes a square root and a division for each element. The variance has a pass of its own,
over differences to the mean: sums of plain squares lose it where the mean is large beside it, four
digits of seven at fifty times the deviation (Chan, Golub & LeVeque, The American Statistician 37,
1983: the corrected two-pass algorithm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import OUT_FUSABLE
from collage.backends.tvm.common.numbers.norms64 import NORMS64


def legalize_group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A float32 group norm, its channels on axis 1 or last; TVM's own for all else.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a group norm.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    return _legalize(builder, call, int(call.attrs.num_groups))


def legalize_instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A float32 instance norm, channels on axis 1 or last: each channel is a group of its own.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and an instance norm.

    Returns
    -------
    relax.Expr
        A call of the tensor program; TVM's own where the norm is another.
    """
    shape = tensor_shape(call.args[0])
    return _legalize(builder, call, shape[int(call.attrs.channel_axis)] if shape else 0)


def _legalize(builder: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr:
    shape, attrs = tensor_shape(call.args[0]), call.attrs
    rank = len(shape or ())
    axes = sorted(int(axis) % rank for axis in attrs.axes) if rank else []
    channel = int(attrs.channel_axis) % rank if rank else 0
    # In some modules the channels are among the axes, in others not.
    others = [axis for axis in range(1, rank) if axis != channel]
    covered = axes in (others, list(range(1, rank)))
    wide = all(str(arg.ty.dtype) == "float32" for arg in call.args)
    if shape is None or not covered or not wide or channel not in (1, rank - 1):
        return NORMS64[str(call.op.name)](builder, call)
    epsilon = float(attrs.epsilon)
    norm = _group_norm if channel == 1 else _group_norm_last
    return builder.call_te(
        lambda x, gamma, beta: norm(x, gamma, beta, shape, groups, epsilon),
        *call.args,
        primfunc_name_hint=str(call.op.name).rpartition(".")[2],
        primfunc_attrs=OUT_FUSABLE,
    )


_BOTH = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lambda *types: tuple(tirx.const(0.0, dtype) for dtype in types),
    name="both",
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

    def over() -> list[tirx.Var]:
        extents = [each, *space]
        return [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate(extents)]

    def place(n: tirx.Var, g: tirx.Var, axes: Sequence[tirx.Var]) -> object:
        return x[(n, g * each + axes[0], *axes[1:])]

    once, again = over(), over()
    total = te.compute(
        (batch, groups), lambda n, g: te.sum(place(n, g, once), axis=once), name="total"
    )

    def moments(n: tirx.Var, g: tirx.Var) -> object:
        difference = place(n, g, again) - total[n, g] / count
        return _BOTH((difference, difference * difference), axis=again)

    # What is left of the differences is the rounding of the first sum.
    left, squares = te.compute((batch, groups), moments, name="moments")

    def mean_of(n: tirx.Var, c: tirx.Var) -> object:
        g = tirx.floordiv(c, each)
        return total[n, g] / count + left[n, g] / count

    def scale_of(n: tirx.Var, c: tirx.Var) -> object:
        g = tirx.floordiv(c, each)
        return gamma[c] * tirx.rsqrt(squares[n, g] / count + epsilon)

    mean = te.compute((batch, channels), mean_of, name="mean")
    scale = te.compute((batch, channels), scale_of, name="scale")
    return te.compute(
        shape,
        lambda n, c, *p: (x[(n, c, *p)] - mean[n, c]) * scale[n, c] + beta[c],
        name="normalized",
    )


def _group_norm_last(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    shape: tuple[int, ...],
    groups: int,
    epsilon: float,
) -> te.Tensor:
    """The same with channels last: sums of channels, whole vectors at a time, then of groups."""
    batch, *space, channels = shape
    each = channels // groups
    count = float(each * math.prod(space))

    def over() -> list[tirx.Var]:
        return [te.reduce_axis((0, extent), name=f"k{i}") for i, extent in enumerate(space)]

    def of_group(sums: te.Tensor, name: str) -> te.Tensor:
        # For each of its channels once more: nobody behind has to look up whose group is whose.
        one = te.reduce_axis((0, each), name="one")
        return te.compute(
            (batch, channels),
            lambda n, c: te.sum(sums[n, tirx.floordiv(c, each) * each + one], axis=one),
            name=name,
        )

    once = over()
    sums = te.compute(
        (batch, channels), lambda n, c: te.sum(x[(n, *once, c)], axis=once), name="sums"
    )
    total = of_group(sums, "total")

    def difference(n: tirx.Var, c: tirx.Var, place: Sequence[tirx.Var]) -> Any:
        return x[(n, *place, c)] - total[n, c] / count

    # What is left of the differences is the rounding of the first sum.
    again, third = over(), over()
    lefts = te.compute(
        (batch, channels), lambda n, c: te.sum(difference(n, c, again), axis=again), name="lefts"
    )
    squared = te.compute(
        (batch, channels),
        lambda n, c: te.sum(difference(n, c, third) * difference(n, c, third), axis=third),
        name="squared",
    )
    left, squares = of_group(lefts, "left"), of_group(squared, "squares")
    mean = te.compute(
        (batch, channels), lambda n, c: total[n, c] / count + left[n, c] / count, name="mean"
    )
    scale = te.compute(
        (batch, channels),
        lambda n, c: gamma[c] * tirx.rsqrt(squares[n, c] / count + epsilon),
        name="scale",
    )
    return te.compute(
        shape,
        lambda n, *p: (x[(n, *p)] - mean[n, p[-1]]) * scale[n, p[-1]] + beta[p[-1]],
        name="normalized",
    )
