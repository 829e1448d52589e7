"""Norms as one reduction and one scale and shift, in float32, over any axes and in any layout.

Both moments come from one pass. Each sum is of differences to the first element that it runs over,
which leaves the variance exact where the mean is large beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import (
    OUT_FUSABLE,
    Legalization,
    default_legalization,
)
from collage.backends.tvm.common.numbers.norms64 import NORMS64
from collage.backends.tvm.common.numbers.rounding import WIDE

Index = Sequence[Any]

_DTYPES = ("float16", "bfloat16", "float32")
"""What is summed in float32; anything else goes TVM's way."""


def legalizations() -> dict[str, Legalization]:
    """The norms' legalizations, by operator name."""
    return {
        "relax.nn.layer_norm": _layer_norm,
        "relax.nn.group_norm": _group_norm,
        "relax.nn.instance_norm": _instance_norm,
        "relax.mean": _mean,
        "relax.variance": _variance,
        "relax.std": _std,
    }


def _layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    rank = len(static_shape(call))
    inside = sorted(int(axis) % rank for axis in call.attrs.axes)
    return _norm(builder, call, _Groups.over(static_shape(call), inside), inside)


def _instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    rank = len(static_shape(call))
    inside = sorted(int(axis) % rank for axis in call.attrs.axes)
    channel = int(call.attrs.channel_axis) % rank
    return _norm(builder, call, _Groups.over(static_shape(call), inside), [channel])


def _group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape = static_shape(call)
    channel = int(call.attrs.channel_axis) % len(shape)
    inside = sorted({int(axis) % len(shape) for axis in call.attrs.axes} - {channel})
    groups = _Groups.over(shape, inside, channel, int(call.attrs.num_groups))
    return _norm(builder, call, groups, [channel])


class _Groups:
    """Which elements share their mean and variance.

    Parameters
    ----------
    shape : sequence of int
        Of the tensor.
    outer : sequence of int
        Of the means.
    terms : sequence of int
        Extents of what is summed over.
    place : callable
        From places among the means and among the terms to that of an element.
    group : callable
        From an element's place to that of its mean.
    """

    def __init__(
        self,
        shape: Sequence[int],
        outer: Sequence[int],
        terms: Sequence[int],
        place: Callable[[Index, Index], list[Any]],
        group: Callable[[Index], list[Any]],
    ) -> None:
        self.shape, self.outer, self.terms = list(shape), list(outer), list(terms)
        self.place, self.group = place, group

    @classmethod
    def over(
        cls, shape: Sequence[int], inside: Sequence[int], channel: int = -1, groups: int = 0
    ) -> _Groups:
        """Whole axes, and where there are groups of channels, those of one group."""
        outside = [axis for axis in range(len(shape)) if axis not in inside]
        width = shape[channel] // groups if groups else 1
        summed = sorted([*inside, channel]) if groups else list(inside)

        def place(own: Index, term: Index) -> list[Any]:
            of = dict(zip(outside, own, strict=True))
            within = dict(zip(summed, term, strict=True))
            if groups:
                within[channel] = of[channel] * width + within[channel]
            return [within.get(axis, of.get(axis)) for axis in range(len(shape))]

        def group(index: Index) -> list[Any]:
            return [
                tirx.floordiv(index[axis], width) if axis == channel and groups else index[axis]
                for axis in outside
            ]

        outer = [groups if a == channel and groups else shape[a] for a in outside]
        terms = [width if a == channel and groups else shape[a] for a in summed]
        return cls(shape, outer, terms, place, group)

    def axes(self) -> list[Any]:
        """Axes to reduce over."""
        return [te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(self.terms)]

    def first(self, x: te.Tensor, name: str) -> te.Tensor:
        """The first element of each sum.

        Parameters
        ----------
        x : te.Tensor
            What is summed.
        name : str
            Of the stage.
        """
        zeros = [0] * len(self.terms)
        return te.compute(self.outer, lambda *o: x(*self.place(o, zeros)).astype(WIDE), name=name)

    def moments(self, x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        """Mean and variance."""
        axes = self.axes()
        count = float(math.prod(self.terms))
        origin = self.first(x, "first")

        def term(*o: Any) -> Any:
            shifted = x(*self.place(o, axes)).astype(WIDE) - origin(*o)
            return _BOTH((shifted, shifted * shifted), axis=axes)

        total, squares = te.compute(self.outer, term, name="moments")
        # Read once more: the sums may come from another kernel.
        again = self.first(x, "first_again")
        mean = te.compute(self.outer, lambda *o: again(*o) + total(*o) / count, name="mean")

        def spread(*o: Any) -> Any:
            shift = total(*o) / count
            return te.max(squares(*o) / count - shift * shift, tirx.const(0, WIDE))

        return mean, te.compute(self.outer, spread, name="variance")


def _add_both(left: Index, right: Index) -> tuple[Any, Any]:
    return left[0] + right[0], left[1] + right[1]


def _no_sums(*dtypes: str) -> tuple[Any, Any]:
    return tirx.const(0, dtypes[0]), tirx.const(0, dtypes[1])


_BOTH = te.comm_reducer(_add_both, _no_sums, name="both")


def _norm(
    builder: relax.BlockBuilder, call: relax.Call, groups: _Groups, scaled: Sequence[int]
) -> relax.Expr:
    """Normalize in groups; scale and shift depend on the places along ``scaled`` axes."""
    dtype = str(call.ty.dtype)
    if dtype not in _DTYPES:
        return NORMS64[str(call.op.name)](builder, call)
    epsilon = float(call.attrs.epsilon)

    def normalized(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        mean, variance = groups.moments(x)

        def statistic(*o: Any) -> Any:
            *own, which = o
            return tirx.Select(which == 0, mean(*own), te.rsqrt(variance(*own) + epsilon))

        # Both in one tensor: a thread keeps them, where sums stay in memory that threads share.
        both = te.compute([*groups.outer, 2], statistic, name="statistics")

        def element(*index: Any) -> Any:
            own, place = groups.group(index), [index[axis] for axis in scaled]
            centred = x(*index).astype(WIDE) - both(*own, 0)
            gain = both(*own, 1) * gamma(*place).astype(WIDE)
            return centred * gain + beta(*place).astype(WIDE)

        result = te.compute(groups.shape, element, name="norm")
        return result if dtype == WIDE else topi.cast(result, dtype)

    hint = str(call.op.name).rpartition(".")[2]
    return builder.call_te(
        normalized, *call.args, primfunc_name_hint=hint, primfunc_attrs=OUT_FUSABLE
    )


def _variance(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _spread(builder, call, lambda value: value)


def _std(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _spread(builder, call, te.sqrt)


def _mean(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own divides by a constant of the operand's type, and float16 ends at 65504."""
    shape, result, keeps = static_shape(call.args[0]), static_shape(call), call.attrs.keepdims
    groups = _Groups.over(shape, _summed(call))
    dtype = str(call.ty.dtype)
    if dtype not in _DTYPES:
        return default_legalization(builder, call)

    def mean(x: te.Tensor) -> te.Tensor:
        axes = groups.axes()

        def term(*own: Any) -> Any:
            return te.sum(x(*groups.place(own, axes)).astype(WIDE), axis=axes)

        total = te.compute(groups.outer, term, name="total")
        count = float(math.prod(groups.terms))

        def element(*index: Any) -> Any:
            own = _without(index, _summed(call)) if keeps else index
            return (total(*own) / count).astype(dtype)

        return te.compute(result, element, name="mean")

    return builder.call_te(
        mean, call.args[0], primfunc_name_hint="mean", primfunc_attrs=OUT_FUSABLE
    )


def _summed(call: relax.Call) -> list[int]:
    """The axes that a reduction runs over."""
    rank, axes = len(static_shape(call.args[0])), call.attrs.axis
    return sorted({int(axis) % rank for axis in axes}) if axes is not None else list(range(rank))


def _without(index: Index, axes: Sequence[int]) -> list[Any]:
    return [place for axis, place in enumerate(index) if axis not in axes]


def _spread(
    builder: relax.BlockBuilder, call: relax.Call, finish: Callable[[Any], Any]
) -> relax.Expr:
    result, keeps = static_shape(call), call.attrs.keepdims
    groups = _Groups.over(static_shape(call.args[0]), _summed(call))
    dtype = str(call.ty.dtype)
    if dtype not in _DTYPES:
        return default_legalization(builder, call)

    def spread(x: te.Tensor) -> te.Tensor:
        _, variance = groups.moments(x)

        def element(*index: Any) -> Any:
            own = _without(index, _summed(call)) if keeps else index
            return finish(variance(*own)).astype(dtype)

        return te.compute(result, element, name="spread")

    hint = str(call.op.name).rpartition(".")[2]
    return builder.call_te(
        spread, call.args[0], primfunc_name_hint=hint, primfunc_attrs=OUT_FUSABLE
    )
