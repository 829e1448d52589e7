"""Convolutions, matrix products and pools, for any number of spatial axes.

A convolution is one matrix product per kernel position, summed: the memory of one shifted input
instead of a whole im2col matrix, and all of the work in BLAS.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax

from collage.cost.reference.values import (
    Array,
    OperatorTable,
    UnsupportedOperator,
    Value,
    ints,
    result_shape,
    widen,
)


def to_layout(array: Array, source: str, wanted: str) -> Array:
    """Transpose from one layout (letters name axes, as in ``NHWC``) to another.

    Raises
    ------
    UnsupportedOperator
        For a blocked layout such as ``NCHW16c``.
    """
    if sorted(source) != sorted(wanted):
        raise UnsupportedOperator(f"layout {source}")
    return array.transpose([source.index(axis) for axis in wanted])


def _spatial(rank: int) -> str:
    return {1: "W", 2: "HW", 3: "DHW"}[rank]


def _pad_spatial(x: Array, begin: Sequence[int], end: Sequence[int], value: float = 0.0) -> Array:
    if not any(begin) and not any(end):
        return x
    widths = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
    return np.pad(x, widths, constant_values=value)


def _tap(
    position: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Any:
    """Where one kernel position reads the padded input (or writes a transposed one's output)."""
    return (
        ...,
        *(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, n, s, d in zip(position, sizes, strides, dilation, strict=True)
        ),
    )


def _at(last: Sequence[Any]) -> Any:
    """An index of the last axes."""
    return (..., *last)


def _convolution(call: relax.Call, args: list[Value]) -> Value:
    attrs = call.attrs
    strides, dilation, groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    rank = len(strides)
    space = _spatial(rank)
    x = to_layout(widen(args[0]), attrs.data_layout, f"NC{space}")
    w = to_layout(widen(args[1]), attrs.kernel_layout, f"OI{space}")
    padding = ints(attrs.padding)
    x = _pad_spatial(x, padding[:rank], padding[rank:])
    out_layout = attrs.out_layout or attrs.data_layout
    sizes_by_axis = dict(zip(out_layout, result_shape(call), strict=False))
    if sorted(out_layout) != sorted(f"NC{space}"):
        raise UnsupportedOperator(f"layout {out_layout}")
    sizes = [sizes_by_axis[axis] for axis in space]
    batch, channels, filters = x.shape[0], x.shape[1], w.shape[0]
    points = int(np.prod(sizes))
    depthwise = groups == channels == filters
    out = np.zeros((batch, groups, filters // groups, points), dtype=x.dtype)
    w = w.reshape(groups, filters // groups, channels // groups, *w.shape[2:])
    for position in itertools.product(*(range(k) for k in w.shape[3:])):
        taps = x[_tap(position, sizes, strides, dilation)]
        taps = taps.reshape(batch, groups, channels // groups, points)
        weight = w[_at(position)]
        out += weight * taps if depthwise else weight @ taps
    return to_layout(out.reshape(batch, filters, *sizes), f"NC{space}", out_layout)


def _transposed_convolution(call: relax.Call, args: list[Value]) -> Value:
    attrs = call.attrs
    strides, dilation, groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    rank = len(strides)
    space = _spatial(rank)
    x = to_layout(widen(args[0]), attrs.data_layout, f"NC{space}")
    w = to_layout(widen(args[1]), attrs.kernel_layout, f"IO{space}")
    out_layout = attrs.out_layout or attrs.data_layout
    if sorted(out_layout) != sorted(f"NC{space}"):
        raise UnsupportedOperator(f"layout {out_layout}")
    wanted = dict(zip(out_layout, result_shape(call), strict=True))
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
        out[_tap(position, x.shape[2:], strides, dilation)] += part
    crop = tuple(slice(b, b + n) for b, n in zip(padding[:rank], sizes, strict=True))
    out = out.reshape(batch, filters, *full)[_at(crop)]
    return to_layout(out, f"NC{space}", out_layout)


def _matmul(_: relax.Call, args: list[Value]) -> Value:
    return np.matmul(widen(args[0]), widen(args[1]))


def _windows(
    call: relax.Call, x: Array, neutral: float, beyond: float | None = None
) -> tuple[Array, str]:
    """Pooling windows (N, C, *out, *kernel) of an input, padded with a neutral value.

    With ``ceil_mode`` a last window may reach beyond the padding; what it finds there is ``beyond``
    (the neutral value if left out).
    """
    attrs = call.attrs
    kernel, strides, dilation = ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation)
    rank = len(kernel)
    layout = f"NC{_spatial(rank)}"
    out_layout = attrs.out_layout or attrs.layout
    x = to_layout(x, attrs.layout, layout)
    if sorted(out_layout) != sorted(layout):
        raise UnsupportedOperator(f"layout {out_layout}")
    wanted = dict(zip(out_layout, result_shape(call), strict=True))
    sizes = [wanted[axis] for axis in layout[2:]]
    padding = ints(attrs.padding)
    overhang = [
        max(0, (n - 1) * s + (k - 1) * d + 1 - size - b - e)
        for e, n, s, k, d, size, b in zip(
            padding[rank:], sizes, strides, kernel, dilation, x.shape[2:], padding, strict=False
        )
    ]
    x = _pad_spatial(x, padding[:rank], padding[rank:], neutral)
    x = _pad_spatial(x, [0] * rank, overhang, neutral if beyond is None else beyond)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    windows = sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    places = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(sizes, strides, strict=True))
    taps = tuple(slice(None, None, d) for d in dilation)
    return windows[_at([*places, *taps])], out_layout


def _max_pool(call: relax.Call, args: list[Value]) -> Value:
    x = widen(args[0])
    lowest: Any = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    windows, out_layout = _windows(call, x, lowest)
    rank = len(call.attrs.pool_size)
    out = windows.max(axis=tuple(range(-rank, 0)))
    return to_layout(out, f"NC{_spatial(rank)}", out_layout)


def _avg_pool(call: relax.Call, args: list[Value]) -> Value:
    x = widen(args[0])
    windows, out_layout = _windows(call, x, 0.0)
    rank = len(call.attrs.pool_size)
    axes = tuple(range(-rank, 0))
    # Padding counts or not, as asked; places beyond it never do.
    in_padding = 1.0 if call.attrs.count_include_pad else 0.0
    count = _windows(call, np.ones_like(x), in_padding, beyond=0.0)[0].sum(axis=axes)
    out = windows.sum(axis=axes) / count
    return to_layout(out, f"NC{_spatial(rank)}", out_layout)


def _adaptive_avg_pool(call: relax.Call, args: list[Value]) -> Value:
    """Bin i of n spans floor(i*size/n) to ceil((i+1)*size/n), as in PyTorch."""
    layout = str(call.attrs.layout)
    out = to_layout(widen(args[0]), layout, f"NC{_spatial(len(layout) - 2)}")
    wanted = ints(call.attrs.output_size or out.shape[2:])
    for axis, bins in enumerate(wanted, start=2):
        size = out.shape[axis]
        edges = [(i * size // bins, -((-(i + 1) * size) // bins)) for i in range(bins)]
        means = [np.take(out, range(*edge), axis=axis).mean(axis=axis) for edge in edges]
        out = np.stack(means, axis=axis)
    return to_layout(out, f"NC{_spatial(len(layout) - 2)}", call.attrs.out_layout or layout)


LINEAR: OperatorTable = {
    **{f"relax.nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": _transposed_convolution for rank in (1, 2, 3)},
    **{f"relax.nn.max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"relax.nn.avg_pool{rank}d": _avg_pool for rank in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_avg_pool for rank in (1, 2, 3)},
    "relax.matmul": _matmul,
}
