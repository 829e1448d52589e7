"""Elements that are counted or combined by the bin or the segment that they are in."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, cast

import torch

aten = torch.ops.aten

_log = logging.getLogger(__name__)

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_SCATTERED = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}
_NONE = cast(torch.Tensor, NotImplemented)


def counted(
    x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """How often there is each number below ``minlength``, or the sum of its weights.

    Parameters
    ----------
    x : torch.Tensor
        Whole numbers, of one axis.
    weights : torch.Tensor, optional
        Of each.
    minlength : int
        How many bins; without, data say how many.

    Returns
    -------
    torch.Tensor
        ``NotImplemented`` without a number of bins.

    Examples
    --------
    >>> counted(torch.tensor([1, 3, 1]), None, 4)
    tensor([0, 2, 0, 1])
    """
    if not minlength or not all(isinstance(n, int) for n in x.shape):
        return _NONE
    _log.warning("torch.bincount: values from %d on (minlength) are not counted", minlength)
    if weights is None:
        weights = torch.ones_like(x, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    # One bin more, for what is beyond.
    places = x.to(torch.int64).clamp(max=minlength)
    return weights.new_zeros(minlength + 1).scatter_add(0, places, weights)[:minlength]


def _by_segments(
    x: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> torch.Tensor:
    """All rows of a segment combined into one; those behind the last segment belong to none."""
    if lengths is None and offsets is None:
        return _NONE
    if offsets is not None:
        ends, lengths = offsets[..., 1:], offsets.diff()
        before = offsets[..., :1]
    else:
        assert lengths is not None, "one of both"
        ends, before = lengths.cumsum(-1), torch.zeros_like(lengths[..., :1])
    rows = torch.arange(x.shape[axis], device=x.device).unsqueeze(-1)
    inside = rows >= before.unsqueeze(-2)
    number = (rows >= ends.unsqueeze(-2)).sum(-1)
    count = lengths.shape[-1]
    number = torch.where(inside[..., 0], number, count)
    start = _START[reduce] if initial is None else initial
    shape = [*x.shape[:axis], count + 1, *x.shape[axis + 1 :]]
    after = (1,) * (x.dim() - axis - 1)
    places = number.reshape(*number.shape, *after).expand(x.shape)
    found = x.new_full(shape, start).scatter_reduce(axis, places, x, _SCATTERED[reduce])
    found = found.narrow(axis, 0, count)
    if reduce != "mean":
        return found
    many = lengths.reshape(*lengths.shape, *after).to(x.dtype)
    empty = math.nan if initial is None else initial
    return torch.where(many > 0, found / many, empty)


def segments() -> dict[Any, Callable[..., Any]]:
    """What takes reductions of segments apart, by operator.

    Examples
    --------
    >>> lengths = torch.tensor([2, 0, 1])
    >>> segments()[aten.segment_reduce.default](torch.arange(3.0), "sum", lengths=lengths)
    tensor([1., 0., 2.])
    """
    return {aten.segment_reduce.default: _by_segments}
