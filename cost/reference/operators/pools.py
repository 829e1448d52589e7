"""Pools over any number of spatial axes, channels first or last.

A pool combines its input with itself, shifted to each place of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference.operators.linear import pad_spatial, spatial_axes, to_layout
from collage.cost.reference.values import (
    Array,
    OperatorTable,
    UnsupportedOperator,
    Value,
    ints,
    widen,
)


@dataclass(frozen=True)
class _Windows:
    """Where a pool's windows lie, in the layout of its result."""

    layout: str
    first: int
    kernel: list[int]
    strides: list[int]
    dilation: list[int]
    padding: list[int]
    sizes: list[int]

    @classmethod
    def of(cls, call: relax.Call) -> _Windows:
        attrs = call.attrs
        layout = str(attrs.out_layout or attrs.layout)
        rank = len(attrs.pool_size)
        space = spatial_axes(rank)
        if layout not in (f"NC{space}", f"N{space}C"):
            raise UnsupportedOperator(f"layout {layout}")
        first = layout.index(space[0])
        sizes = list(static_shape(call)[first : first + rank])
        options = (ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation))
        return cls(layout, first, *options, ints(attrs.padding), sizes)

    def pad(self, x: Array, neutral: float, beyond: float) -> Array:
        """Add the padding, and ``beyond`` where with ``ceil_mode`` a last window reaches past it.

        ``x`` may also be an array of the spatial axes alone, with ``first`` axes before them.
        """
        rank = len(self.kernel)
        before, after = self.padding[:rank], self.padding[rank:]
        spatial = x.shape[self.first : self.first + rank]
        overhang = [
            max(0, (n - 1) * s + (k - 1) * d + 1 - size - b - e)
            for n, s, k, d, size, b, e in zip(
                *(self.sizes, self.strides, self.kernel, self.dilation, spatial, before, after),
                strict=True,
            )
        ]
        x = pad_spatial(x, before, after, neutral, first=self.first)
        return pad_spatial(x, [0] * rank, overhang, beyond, first=self.first)

    def combine(self, padded: Array, function: Callable[..., Any]) -> Array:
        """All places of the window, combined two by two; one axis after the other, for a window
        over a whole image has as many places as that has points."""
        out = padded
        options = zip(self.kernel, self.sizes, self.strides, self.dilation, strict=True)
        for axis, (k, n, s, d) in enumerate(options, start=self.first):
            before: tuple[slice, ...] = (slice(None),) * axis
            source = out
            taps = (source[*before, slice(p * d, p * d + (n - 1) * s + 1, s)] for p in range(k))
            out = next(taps).copy()
            for tap in taps:
                function(out, tap, out=out)
        return out


def _max_pool(call: relax.Call, args: list[Value]) -> Value:
    windows = _Windows.of(call)
    x = to_layout(widen(args[0]), call.attrs.layout, windows.layout)
    lowest: Any = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return windows.combine(windows.pad(x, lowest, lowest), np.maximum)


def _avg_pool(call: relax.Call, args: list[Value]) -> Value:
    windows = _Windows.of(call)
    x = to_layout(widen(args[0]), call.attrs.layout, windows.layout)
    # Padding counts or not, as asked; places beyond it never do.
    ones = np.ones([1 if a in "NC" else n for a, n in zip(windows.layout, x.shape, strict=True)])
    in_padding = 1.0 if call.attrs.count_include_pad else 0.0
    count = windows.combine(windows.pad(ones, in_padding, 0.0), np.add)
    return windows.combine(windows.pad(x, 0.0, 0.0), np.add) / count.astype(x.dtype)


def _adaptive_avg_pool(call: relax.Call, args: list[Value]) -> Value:
    """Bin i of n spans floor(i*size/n) to ceil((i+1)*size/n), as in PyTorch."""
    layout = str(call.attrs.layout)
    channels_first = f"NC{spatial_axes(len(layout) - 2)}"
    out = to_layout(widen(args[0]), layout, channels_first)
    wanted = ints(call.attrs.output_size or out.shape[2:])
    for axis, bins in enumerate(wanted, start=2):
        size = out.shape[axis]
        edges = [(i * size // bins, -((-(i + 1) * size) // bins)) for i in range(bins)]
        means = [np.take(out, range(*edge), axis=axis).mean(axis=axis) for edge in edges]
        out = np.stack(means, axis=axis)
    return to_layout(out, channels_first, call.attrs.out_layout or layout)


POOLS: OperatorTable = {
    **{f"relax.nn.max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"relax.nn.avg_pool{rank}d": _avg_pool for rank in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_avg_pool for rank in (1, 2, 3)},
}
