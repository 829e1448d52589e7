"""Maxima of windows at places that are drawn, with what was drawn given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def _begins(drawn: torch.Tensor, extent: int, count: int, window: int) -> torch.Tensor:
    """Where windows begin along one axis: (samples, channels, windows)."""
    last = torch.full([*drawn.shape, 1], extent - window, dtype=torch.int64)
    if count == 1:
        return last
    step = (extent - window) / (count - 1)
    places = torch.arange(count - 1, dtype=drawn.dtype)
    shift = drawn.unsqueeze(-1)
    # Cut off, not rounded; all of it is above zero.
    found = ((places + shift) * step).to(torch.int64) - (shift * step).to(torch.int64)
    return torch.cat([found, last], -1)


def _pooled(
    x: torch.Tensor, windows: Sequence[int], counts: Sequence[int], drawn: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rank = len(windows)
    batched = x if x.dim() == rank + 2 else x.unsqueeze(0)
    extents, lead = list(batched.shape[2:]), list(batched.shape[:2])
    # Of an image the first number is that of its width.
    order = list(range(rank)) if rank == 3 else [1, 0]
    flat = torch.zeros([1] * (2 + 2 * rank), dtype=torch.int64)
    for axis, (extent, count, window) in enumerate(zip(extents, counts, windows, strict=True)):
        begins = _begins(drawn[:, :, order[axis]], extent, count, window)
        places = begins.unsqueeze(-1) + torch.arange(window)
        shape = [1] * (2 + 2 * rank)
        shape[0], shape[1], shape[2 + axis], shape[2 + rank + axis] = *lead, count, window
        flat = flat * extent + places.reshape(shape)
    size = 1
    for window in windows:
        size *= window
    flat = flat.expand([*lead, *counts, *windows]).reshape([*lead, -1])
    values = batched.flatten(2).gather(2, flat).reshape([*lead, *counts, size])
    best, which = values.max(-1)
    found = flat.reshape([*lead, *counts, size]).gather(-1, which.unsqueeze(-1)).squeeze(-1)
    return (best, found) if x.dim() == rank + 2 else (best.squeeze(0), found.squeeze(0))


def fractional() -> dict[Any, Callable[..., Any]]:
    """What takes them apart, by operator.

    Examples
    --------
    >>> x, drawn = torch.arange(16.0).reshape(1, 1, 4, 4), torch.full((1, 1, 2), 0.5)
    >>> fractional()[aten.fractional_max_pool2d.default](x, [2, 2], [2, 2], drawn)[0]
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """
    return {
        aten.fractional_max_pool2d.default: _pooled,
        aten.fractional_max_pool3d.default: _pooled,
    }
