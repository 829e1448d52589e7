"""Convolutions and matrix products, for any number of spatial axes.

Channels first, a convolution is a matrix product with pieces of the im2col matrix that stay in a
cache: one product per kernel position, summed, goes through memory six times for each, and has few
channels to multiply. Channels last, it is one product with the im2col matrix, whose rows are
contiguous pieces of the input there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.values import (
    Array,
    OperatorTable,
    UnsupportedOperator,
    Value,
    ints,
    widen,
)

_WIDTH = 64
"""Channels of a group that makes a matrix product worth its while."""

_COLUMNS = 1 << 24
"""Elements of an im2col matrix that is made at once."""

_PIECE = 1 << 19
"""Of one whose pieces are to stay in a cache."""


def to_layout(array: Array, source: str, wanted: str) -> Array:
    """The array transposed from one layout to another.

    Parameters
    ----------
    array : ndarray
        In the layout ``source``.
    source, wanted : str
        Letters name axes, as in ``NHWC``.

    Returns
    -------
    ndarray
        A view of the same elements.

    Raises
    ------
    UnsupportedOperator
        For a blocked layout such as ``NCHW16c``.
    """
    if sorted(source) != sorted(wanted):
        raise UnsupportedOperator(f"layout {source}")
    return array.transpose([source.index(axis) for axis in wanted])


def spatial_axes(rank: int) -> str:
    """The letters of a layout's spatial axes."""
    return {1: "W", 2: "HW", 3: "DHW"}[rank]


def pad_spatial(
    x: Array, begin: Sequence[int], end: Sequence[int], value: float = 0.0, *, first: int = 2
) -> Array:
    """The array with its spatial axes padded.

    Parameters
    ----------
    x : ndarray
        Any layout whose spatial axes follow each other.
    begin, end : sequence of int
        How much before and after, by spatial axis.
    value : float
        What to pad with.
    first : int
        Number of the first spatial axis.

    Returns
    -------
    ndarray
        ``x`` itself where there is nothing to pad.
    """
    if not any(begin) and not any(end):
        return x
    widths = [(0, 0)] * x.ndim
    widths[first : first + len(begin)] = zip(begin, end, strict=True)
    return np.pad(x, widths, constant_values=value)


def _tap_index(
    position: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """Where one kernel position reads the padded input's spatial axes (or writes a transposed
    one's output).
    """
    return tuple(
        slice(p * d, p * d + (n - 1) * s + 1, s)
        for p, n, s, d in zip(position, sizes, strides, dilation, strict=True)
    )


def _at(last: Sequence[Any]) -> Any:
    """An index of the last axes."""
    return (..., *last)


def _convolution(call: relax.Call, args: list[Value]) -> Value:
    attrs = call.attrs
    strides, dilation, groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    rank = len(strides)
    space = spatial_axes(rank)
    if attrs.data_layout == f"N{space}C" and (attrs.out_layout or attrs.data_layout)[-1] == "C":
        return _convolution_channels_last(call, args)
    x = to_layout(widen(args[0]), attrs.data_layout, f"NC{space}")
    w = to_layout(widen(args[1]), attrs.kernel_layout, f"OI{space}")
    padding = ints(attrs.padding)
    x = pad_spatial(x, padding[:rank], padding[rank:])
    out_layout = attrs.out_layout or attrs.data_layout
    sizes_by_axis = dict(zip(out_layout, static_shape(call), strict=False))
    if sorted(out_layout) != sorted(f"NC{space}"):
        raise UnsupportedOperator(f"layout {out_layout}")
    sizes = [sizes_by_axis[axis] for axis in space]
    batch, channels, filters = x.shape[0], x.shape[1], w.shape[0]
    points = int(np.prod(sizes))
    if groups == channels == filters:
        out = np.zeros((batch, channels, points), dtype=x.dtype)
        for position in itertools.product(*(range(k) for k in w.shape[2:])):
            taps = x[_at(_tap_index(position, sizes, strides, dilation))]
            out += w[_at(position)] * taps.reshape(batch, channels, points)
    else:
        out = _by_pieces(x, w, sizes, strides, dilation, groups)
    return to_layout(out.reshape(batch, filters, *sizes), f"NC{space}", out_layout)


def _by_pieces(
    x: Array,
    w: Array,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """The results of a convolution, channels first, some along the first spatial axis at a time."""
    batch, channels, filters = x.shape[0], x.shape[1], w.shape[0]
    positions = list(itertools.product(*(range(k) for k in w.shape[2:])))
    row = int(np.prod(sizes[1:]))
    weights = w.reshape(groups, filters // groups, -1)
    out = np.empty((batch, groups, filters // groups, sizes[0] * row), dtype=x.dtype)
    step = max(1, _PIECE // max(1, batch * channels * len(positions) * row))
    for begin in range(0, sizes[0], step):
        some = (min(step, sizes[0] - begin), *sizes[1:])
        columns = np.empty((batch, channels, len(positions), *some), dtype=x.dtype)
        rows = x[:, :, begin * strides[0] :]
        for number, position in enumerate(positions):
            columns[:, :, number] = rows[_at(_tap_index(position, some, strides, dilation))]
        here = slice(begin * row, (begin + some[0]) * row)
        out[..., here] = weights @ columns.reshape(batch, groups, weights.shape[2], some[0] * row)
    return out


def _convolution_channels_last(call: relax.Call, args: list[Value]) -> Array:
    attrs = call.attrs
    strides, dilation, groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    rank = len(strides)
    padding = ints(attrs.padding)
    x = pad_spatial(widen(args[0]), padding[:rank], padding[rank:], first=1)
    w = to_layout(widen(args[1]), attrs.kernel_layout, f"O{spatial_axes(rank)}I")
    shape = static_shape(call)
    sizes, filters, channels = shape[1:-1], w.shape[0], x.shape[-1]
    kernel = w.shape[1:-1]
    if groups == channels == filters:
        out = np.zeros(shape, dtype=x.dtype)
        for position in itertools.product(*(range(k) for k in kernel)):
            index = _tap_index(position, sizes, strides, dilation)
            place: tuple[Any, ...] = (slice(None), *position, 0)
            out += x[(slice(None), *index)] * w[place]
        return out
    groups, weights = _block_diagonal(w, groups)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    windows = sliding_window_view(x, reach, axis=tuple(range(1, 1 + rank)))
    places = [slice(0, (n - 1) * s + 1, s) for n, s in zip(sizes, strides, strict=True)]
    taps = [slice(None, None, d) for d in dilation]
    # (batch, *sizes, groups, channels of a group, *kernel): each group's columns side by side.
    windows = windows[(slice(None), *places, slice(None), *taps)]
    windows = windows.reshape(*shape[:-1], groups, channels // groups, *kernel)
    order = [rank + 1, *range(rank + 1), *range(rank + 3, 2 * rank + 3), rank + 2]
    out = np.empty((groups, *shape[:-1], filters // groups), dtype=x.dtype)
    step = max(1, _COLUMNS // max(1, windows[:1].size))
    for begin in range(0, shape[0], step):
        columns = windows[begin : begin + step].transpose(order)
        part = columns.reshape(groups, -1, weights.shape[1]) @ weights
        out[:, begin : begin + step] = part.reshape(groups, -1, *sizes, filters // groups)
    return np.moveaxis(out, 0, -2).reshape(shape)


def _block_diagonal(w: Array, groups: int) -> tuple[int, Array]:
    """Fewer, wider groups and their weights (groups, kernel * channels, filters).

    Products of a few columns are slow out of all proportion: neighbouring groups become one, with
    zeros where a filter meets the channels of another.
    """
    channels, filters = w.shape[-1], w.shape[0] // groups
    fitting = [n for n in range(2, groups + 1) if groups % n == 0 and n * channels <= _WIDTH]
    joined = max(fitting, default=1)
    parts = w.reshape(groups // joined, joined, filters, -1, channels)
    taps = parts.shape[3]
    out = np.zeros((groups // joined, taps, joined, channels, joined, filters), dtype=w.dtype)
    for index in range(joined):
        out[:, :, index, :, index] = parts[:, index].transpose(0, 2, 3, 1)
    return groups // joined, out.reshape(groups // joined, taps * joined * channels, -1)


def _transposed_convolution(call: relax.Call, args: list[Value]) -> Value:
    attrs = call.attrs
    strides, dilation, groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    rank = len(strides)
    space = spatial_axes(rank)
    x = to_layout(widen(args[0]), attrs.data_layout, f"NC{space}")
    w = to_layout(widen(args[1]), attrs.kernel_layout, f"IO{space}")
    out_layout = attrs.out_layout or attrs.data_layout
    if sorted(out_layout) != sorted(f"NC{space}"):
        raise UnsupportedOperator(f"layout {out_layout}")
    wanted = dict(zip(out_layout, static_shape(call), strict=True))
    sizes = [wanted[axis] for axis in space]
    padding = ints(attrs.padding)
    batch, channels = x.shape[:2]
    filters = w.shape[1] * groups
    kernel = w.shape[2:]
    full = [
        max((n - 1) * s + (k - 1) * d + 1, before + size)
        for n, s, k, d, before, size in zip(
            x.shape[2:], strides, kernel, dilation, padding[:rank], sizes, strict=True
        )
    ]
    out = np.zeros((batch, groups, filters // groups, *full), dtype=x.dtype)
    points = x.reshape(batch, groups, channels // groups, -1)
    w = w.reshape(groups, channels // groups, filters // groups, *kernel).swapaxes(1, 2)
    for position in itertools.product(*(range(k) for k in kernel)):
        part = w[_at(position)] @ points
        part = part.reshape(batch, groups, filters // groups, *x.shape[2:])
        out[_at(_tap_index(position, x.shape[2:], strides, dilation))] += part
    crop = tuple(slice(b, b + n) for b, n in zip(padding[:rank], sizes, strict=True))
    out = out.reshape(batch, filters, *full)[_at(crop)]
    return to_layout(out, f"NC{space}", out_layout)


def _matmul(_: relax.Call, args: list[Value]) -> Value:
    return np.matmul(widen(args[0]), widen(args[1]))


LINEAR: OperatorTable = {
    **{f"relax.nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": _transposed_convolution for rank in (1, 2, 3)},
    "relax.matmul": _matmul,
}
