"""Blocks added up where they overlap: ``fold``, the other way of ``unfold``.

PyTorch takes it apart into a sum scattered over places, which is slow wherever it runs. Here it is
a few shifted tensors added up, along one axis and then along the other: with stride zeros are put
between, and what is beyond the borders is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional


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
    folds = list(zip(output_size, kernel_size, dilation, padding, stride, strict=True))
    blocks = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, d, p, s in folds]
    lead = x.shape[:-2]
    channels = x.shape[-2] // (kernel_size[0] * kernel_size[1])
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    taps = wide.reshape(-1, channels, *kernel_size, *blocks)
    # (N, C, taps down, taps across, blocks down, blocks across): columns first, rows then.
    image = _overlapped(_overlapped(taps, 3, 5, *folds[1]), 2, 3, *folds[0])
    return image.to(x.dtype).reshape(*lead, channels, *output_size)


def _overlapped(
    x: torch.Tensor,
    taps: int,
    axis: int,
    size: int,
    kernel: int,
    dilation: int,
    padding: int,
    stride: int,
) -> torch.Tensor:
    """The sum over an axis of taps, each moved along another axis, which grows to ``size``."""
    behind = 2 * (x.dim() - 1 - axis)
    if stride > 1:
        spread = functional.pad(x.unsqueeze(axis + 1), [0] * behind + [0, stride - 1])
        x = spread.flatten(axis, axis + 1)
    moved = []
    for tap in range(kernel):
        begin = tap * dilation - padding
        widths = [0] * behind + [begin, size - begin - x.shape[axis]]
        moved.append(functional.pad(x.narrow(taps, tap, 1), widths))
    total = moved[0]
    for part in moved[1:]:
        total = total + part
    return total.squeeze(taps)
