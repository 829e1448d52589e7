"""Blocks added up where they overlap: ``fold``, the other way of ``unfold``.

PyTorch takes it apart into a sum scattered over places, which is slow wherever it runs. Here it is
a few shifted tensors added up, along one axis and then along the other, and what is beyond the
borders is cut. Blocks that do not overlap are put in order, and nothing is added up.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch.nn import functional

_MOST_OVERLAPPING = 16


def col2im(
    x: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """``aten.col2im``, added up in float32 at the least.

    Parameters
    ----------
    x : Tensor
        (N, C * product of ``kernel_size``, blocks), or without N.
    output_size : sequence of int
        Of the image.
    kernel_size, dilation, padding, stride : sequence of int
        Of the blocks, rows and columns.

    Returns
    -------
    Tensor
        (N, C, *output_size), or without N.
    """
    ways = list(zip(output_size, dilation, padding, stride, strict=True))
    blocks = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for k, (size, d, p, s) in zip(kernel_size, ways, strict=True)
    ]
    lead = x.shape[:-2]
    channels = x.shape[-2] // (kernel_size[0] * kernel_size[1])
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    taps = wide.reshape(-1, channels, *kernel_size, *blocks)
    # (N, C, taps down, taps across, blocks down, blocks across): columns first, rows then.
    image = _overlapped(_overlapped(taps, 3, 5, *ways[1]), 2, 3, *ways[0])
    return image.to(x.dtype).reshape(*lead, channels, *output_size)


def windows_added(
    x: torch.Tensor, sizes: Sequence[int], dim: int, size: int, step: int
) -> torch.Tensor:
    """``aten.unfold_backward``, where no more windows overlap than are worth as many tensors.

    Parameters
    ----------
    x : Tensor
        Windows along an axis, their values last.
    sizes : sequence of int
        Of the result.
    dim : int
        The axis.
    size, step : int
        How long windows are, and how far apart.

    Returns
    -------
    Tensor
        Zeros where no window is.
    """
    if not sizes or -(-size // step) > _MOST_OVERLAPPING or not x.numel():
        return NotImplemented
    dim %= len(sizes)
    return _overlapped(x.movedim(-1, dim), dim, dim + 1, sizes[dim], 1, 0, step)


def _overlapped(
    x: torch.Tensor, taps: int, axis: int, size: int, dilation: int, padding: int, stride: int
) -> torch.Tensor:
    """The sum over an axis of taps, each moved along another axis, which grows to ``size``.

    ``stride`` taps in a row fill the places from one block to the next, so they are put side by
    side; only as many such groups as reach into the next blocks are added up.
    """
    if dilation > 1:
        spread = functional.pad(x.unsqueeze(taps + 1), [*_behind(x, taps), 0, dilation - 1])
        x = spread.flatten(taps, taps + 1)
    groups = -(-x.shape[taps] // stride)
    x = functional.pad(x, [*_behind(x, taps), 0, groups * stride - x.shape[taps]])
    x = x.unflatten(taps, (groups, stride)).movedim(taps + 1, axis + 1).flatten(axis, axis + 1)
    begins = [group * stride - padding for group in range(groups)]
    moved = [
        functional.pad(
            x.narrow(taps, group, 1), [*_behind(x, axis), begin, size - begin - x.shape[axis]]
        )
        for group, begin in enumerate(begins)
    ]
    return functools.reduce(torch.add, moved).squeeze(taps)


def _behind(x: torch.Tensor, axis: int) -> list[int]:
    """No padding of the axes behind one, as ``functional.pad`` begins."""
    return [0] * (2 * int(x.dim() - 1 - axis))
