"""Transposed and grouped convolutions as ordinary products, for the schedules of products.

The places of a transposed convolution's result that are a stride apart form a phase: they go
through the same taps of the kernel. So each phase is a convolution of stride one with a kernel of
its own, and all of them are one product with an axis more. Groups of channels are such an axis too.
What comes out is put in order by the stage behind, which schedules inline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from collage.backends.relax.calls.pooling import SPATIAL
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import OUT_FUSABLE, default_legalization
from collage.backends.tvm.common.transposed_axis import TransposedAxis

_WIDE = "float32"

_LEAST = 8
"""Channels below which most of a tile would be padding."""

_TOGETHER = 4
"""Channels that are stored at once."""

_WIDEST_TILE = 128
"""Columns of the largest tile of a product: all tiles divide it."""


def legalize_phases(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """A transposed convolution, channels last, as a product for each phase; None where it is none.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of ``conv1d_transpose``, ``conv2d_transpose`` or
        ``conv3d_transpose``.

    Returns
    -------
    relax.Expr or None
        A call of the last tensor program; None too where channels or strides do not fit tensor
        cores.
    """
    given = call.attrs
    rank = len(given.strides)
    space, layout = SPATIAL[rank], str(given.data_layout)
    weights = call.args[1]
    plain = layout == f"N{space}C" and int(given.groups) == 1
    if (
        not plain
        or not isinstance(weights, GenericConst)
        or any(int(d) > 1 for d in given.dilation)
    ):
        return None
    batch, *extents, inputs = static_shape(call.args[0])
    *outer, outputs = static_shape(call)[1:]
    places = str(given.kernel_layout)
    kernel = [static_shape(weights)[places.index(a)] for a in space]
    if inputs < _LEAST or outputs < _LEAST or outputs % _TOGETHER:
        return None
    axes = [
        _Axis(*(int(v) for v in values))
        for values in zip(extents, outer, kernel, given.strides, given.padding, strict=False)
    ]
    if any(axis.result % axis.stride for axis in axes):
        return None
    array = weights.value.numpy().transpose([places.index(a) for a in f"O{space}I"])
    by_phase = relax.const(_kernels(array, axes), str(weights.ty.dtype))
    dtype = str(call.ty.dtype)

    def convolution(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        padded = _padded(x, [(axis.before, axis.behind) for axis in axes])
        channel = te.reduce_axis((0, inputs), name="c")
        taps = [te.reduce_axis((0, axis.taps), name=f"r{n}") for n, axis in enumerate(axes)]

        def term(*index: Any) -> Any:
            phase, (n, *at, o) = index[:rank], index[rank:]
            met = [a.first(p) + q + r for a, p, q, r in zip(axes, phase, at, taps, strict=True)]
            value = padded(n, *met, channel).astype(_WIDE)
            return te.sum(value * w(*phase, o, *taps, channel).astype(_WIDE), axis=[*taps, channel])

        shape = [*(a.stride for a in axes), batch, *(a.result // a.stride for a in axes), outputs]
        return te.compute(shape, term, name="conv_transpose")

    def ordered(sums: te.Tensor) -> te.Tensor:
        def element(n: Any, *place: Any) -> Any:
            *at, o = place
            phase = [tirx.floormod(v, a.stride) for v, a in zip(at, axes, strict=True)]
            count = [tirx.floordiv(v, a.stride) for v, a in zip(at, axes, strict=True)]
            return sums(*phase, n, *count, o).astype(dtype)

        return te.compute(static_shape(call), element, name="ordered")

    def narrow(sums: te.Tensor) -> te.Tensor:
        return te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="narrow")

    operands = call.args[0], by_phase
    attrs = {"primfunc_name_hint": f"conv{rank}d_transpose", "primfunc_attrs": OUT_FUSABLE}
    columns = outputs * math.prod(a.stride for a in axes if a.padding % a.stride == 0)
    if columns == outputs or columns % _WIDEST_TILE == 0:
        return builder.call_te(lambda *x: ordered(convolution(*x)), *operands, **attrs)
    # Phases that read the same places are columns of one product. What a tile computes beyond the
    # last of them would be stored among the next phases' results, were both one kernel.
    product = builder.emit(builder.call_te(lambda *x: narrow(convolution(*x)), *operands, **attrs))
    return builder.call_te(ordered, product, primfunc_name_hint="phases")


class _Axis(TransposedAxis):
    """With what its phases read."""

    @property
    def taps(self) -> int:
        """Of each phase's kernel."""
        return -(-self.kernel // self.stride)

    @property
    def before(self) -> int:
        """Zeros before the data."""
        return max(0, self.taps - 1 - self.padding // self.stride)

    @property
    def behind(self) -> int:
        """Zeros behind it."""
        furthest = self.result // self.stride - 1 + (self.stride - 1 + self.padding) // self.stride
        return max(0, furthest - (self.extent - 1))

    def first(self, phase: Any) -> Any:
        """Where a phase's first place begins to read, in the data with its zeros."""
        start = self.before - (self.taps - 1)
        if self.padding % self.stride == 0:
            return start + self.padding // self.stride
        return tirx.floordiv(phase + self.padding, self.stride) + start


def _kernels(array: np.ndarray[Any, Any], axes: Sequence[_Axis]) -> np.ndarray[Any, Any]:
    """Each phase's kernel, taps in the order of the data that they meet: phases, O, taps, I."""
    rank = len(axes)
    widths = [(0, 0), *((0, a.taps * a.stride - a.kernel) for a in axes), (0, 0)]
    padded = np.pad(array, widths)
    for n, axis in enumerate(axes):
        # Tap ``r`` of a phase lies ``r`` strides behind its first, and meets data ``r`` before.
        order = [
            [(phase + axis.padding) % axis.stride + r * axis.stride for phase in range(axis.stride)]
            for r in reversed(range(axis.taps))
        ]
        taken = np.take(padded, np.asarray(order).T, axis=1 + 2 * n)
        padded = taken
    # Now O, then (phase, tap) for each axis, then I.
    phases = [1 + 2 * n for n in range(rank)]
    taps = [2 + 2 * n for n in range(rank)]
    return np.ascontiguousarray(padded.transpose([*phases, 0, *taps, 1 + 2 * rank]))


def _padded(x: te.Tensor, widths: Sequence[tuple[int, int]]) -> te.Tensor:
    """Zeros around the spatial axes of a tensor, channels last."""
    if not any(before or behind for before, behind in widths):
        return x
    batch, *extents, inputs = (int(extent) for extent in x.shape)
    shape = [batch, *(n + sum(w) for n, w in zip(extents, widths, strict=True)), inputs]

    def element(n: Any, *place: Any) -> Any:
        *at, c = place
        moved = [v - before for v, (before, _) in zip(at, widths, strict=True)]
        guards = [
            guard
            for v, extent, (before, behind) in zip(moved, extents, widths, strict=True)
            for guard in ([v >= 0] if before else []) + ([v < extent] if behind else [])
        ]
        return tirx.if_then_else(tirx.all(*guards), x(n, *moved, c), tirx.const(0, x.dtype))

    return te.compute(shape, element, name="pad_temp")


def legalize_groups(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """A grouped convolution, channels last, as a product for each group; None where it is none.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of ``conv1d``, ``conv2d`` or ``conv3d``.

    Returns
    -------
    relax.Expr or None
        A call of the last tensor program; None too where groups are too narrow for tensor cores.
    """
    given = call.attrs
    rank, groups = len(given.strides), int(given.groups)
    space, layout, places = SPATIAL[rank], str(given.data_layout), str(given.kernel_layout)
    if layout != f"N{space}C":
        return None
    batch, *outer, outputs = static_shape(call)
    channels, width = static_shape(call.args[0])[-1] // groups, outputs // groups
    # Eight elements of an operand are read at once: they must belong to one place.
    if groups == 1 or channels % _LEAST or width < _LEAST:
        return None
    order = [places.index(a) for a in f"O{space}I"]
    kernel = [static_shape(call.args[1])[n] for n in order[1:-1]]
    by_group = _arranged(builder, call.args[1], order, (groups, width, *kernel, channels))
    dtype = str(call.ty.dtype)
    strides, dilation = [[int(v) for v in axis] for axis in (given.strides, given.dilation)]
    before, behind = [[int(v) for v in given.padding][n * rank : (n + 1) * rank] for n in (0, 1)]

    def convolution(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        padded = _padded(x, list(zip(before, behind, strict=True)))
        channel = te.reduce_axis((0, channels), name="c")
        taps = [te.reduce_axis((0, extent), name=f"r{n}") for n, extent in enumerate(kernel)]

        def term(n: Any, *index: Any) -> Any:
            *at, g, o = index
            met = [v * s + r * d for v, s, r, d in zip(at, strides, taps, dilation, strict=True)]
            value = padded(n, *met, g * channels + channel).astype(_WIDE)
            return te.sum(value * w(g, o, *taps, channel).astype(_WIDE), axis=[*taps, channel])

        sums = te.compute([batch, *outer, groups, width], term, name="conv")
        return te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="narrow")

    product = builder.emit(
        builder.call_te(
            convolution,
            call.args[0],
            by_group,
            primfunc_name_hint=f"conv{rank}d",
            primfunc_attrs=OUT_FUSABLE,
        )
    )
    flat = relax.op.reshape(product, relax.ShapeExpr([batch, *outer, outputs]))
    return default_legalization(builder, builder.normalize(flat))


def _arranged(
    builder: relax.BlockBuilder, weights: relax.Expr, order: list[int], shape: tuple[int, ...]
) -> relax.Expr:
    """Weights in another order and shape: now where they are known, else as the model runs."""
    if isinstance(weights, GenericConst):
        array = weights.value.numpy().transpose(order).reshape(shape)
        return relax.const(np.ascontiguousarray(array), str(weights.ty.dtype))
    if order != sorted(order):
        weights = _emitted(builder, relax.op.permute_dims(weights, order))
    return _emitted(builder, relax.op.reshape(weights, relax.ShapeExpr(shape)))


def _emitted(builder: relax.BlockBuilder, expr: relax.Expr) -> relax.Var:
    return builder.emit(default_legalization(builder, builder.normalize(expr)))
