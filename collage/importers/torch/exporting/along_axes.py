"""Derivatives of operators that take each axis by itself: means of windows, interpolations.

Along an axis such an operator is a product with a matrix, which is what it makes of unit vectors;
its derivative is the product with the transposed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_aten = torch.ops.aten

_INTERPOLATIONS = "linear1d", "bilinear2d", "bicubic2d", "trilinear3d"
"""But for antialiased ones, which PyTorch 2.14 gets wrong in images that are one pixel wide."""

Along = Callable[[torch.Tensor, int], torch.Tensor]
"""What an operator makes of a tensor with one axis longer than 1, which is which."""


def derivatives_along_axes() -> dict[Any, Callable[..., Any]]:
    """What takes them apart, by operator."""
    found: dict[Any, Callable[..., Any]] = {
        _aten.avg_pool2d_backward.default: partial(_of_means, 2),
        _aten.avg_pool3d_backward.default: partial(_of_means, 3),
        _aten._adaptive_avg_pool2d_backward.default: partial(_of_adaptive_means, 2),
        _aten._adaptive_avg_pool3d_backward.default: partial(_of_adaptive_means, 3),
    }
    for rank in (1, 2, 3):
        for name in (f"upsample_nearest{rank}d", f"_upsample_nearest_exact{rank}d"):
            backward = getattr(_aten, f"{name}_backward").default
            found[backward] = partial(_of_nearest, getattr(_aten, name).default)
    for name in _INTERPOLATIONS:
        backward = getattr(_aten, f"upsample_{name}_backward").default
        found[backward] = partial(_of_interpolation, getattr(_aten, f"upsample_{name}").default)
    return found


def _turned_back(given: torch.Tensor, extents: Sequence[int], along: Along) -> torch.Tensor:
    """A gradient of results as one of what these were made of, whose last axes are as long."""
    rank = len(extents)
    for axis, extent in enumerate(extents):
        with _disable_current_modes():
            units = torch.eye(extent, dtype=torch.float64)
            units = units.reshape(1, extent, *_at(axis, extent, rank))
            matrix = along(units, axis).reshape(extent, -1).mT.to(given.dtype)
        place = axis - rank
        given = (given.movedim(place, -1) @ matrix).movedim(-1, place)
    return given


def _at(axis: int, value: Any, rank: int, other: Any = 1) -> list[Any]:
    """A value at one axis, and another at all other ones."""
    return [value if place == axis else other for place in range(rank)]


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


def _of_means(
    rank: int,
    given: torch.Tensor,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    counts_padding: bool,
    divisor: int | None,
) -> torch.Tensor:
    operator = torch.nn.functional.avg_pool2d if rank == 2 else torch.nn.functional.avg_pool3d
    kernel, padding = _each(kernel, rank), _each(padding, rank)
    stride = _each(stride, rank) if stride else kernel

    def along(units: torch.Tensor, axis: int) -> torch.Tensor:
        windows = (
            _at(axis, kernel[axis], rank),
            _at(axis, stride[axis], rank),
            _at(axis, padding[axis], rank, 0),
        )
        found: torch.Tensor = operator(
            units, *windows, ceil, counts_padding, None if divisor is None else 1
        )
        return found

    found = _turned_back(given, x.shape[-rank:], along)
    return found if divisor is None else found / divisor


def _of_adaptive_means(rank: int, given: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    functional = torch.nn.functional
    operator = functional.adaptive_avg_pool2d if rank == 2 else functional.adaptive_avg_pool3d
    after = given.shape[-rank:]

    def along(units: torch.Tensor, axis: int) -> torch.Tensor:
        found: torch.Tensor = operator(units, _at(axis, after[axis], rank))
        return found

    return _turned_back(given, x.shape[-rank:], along)


def _of_nearest(
    operator: Callable[..., Any],
    given: torch.Tensor,
    after: Sequence[int],
    before: Sequence[int],
    *scales: float | None,
) -> torch.Tensor:
    rank = len(after)

    def along(units: torch.Tensor, axis: int) -> torch.Tensor:
        scale = scales[axis] if scales else None
        found: torch.Tensor = operator(
            units, _at(axis, after[axis], rank), *_at(axis, scale, rank, None)
        )
        return found

    return _turned_back(given, before[2:], along)


def _of_interpolation(
    operator: Callable[..., Any],
    given: torch.Tensor,
    after: Sequence[int],
    before: Sequence[int],
    corners: bool,
    *scales: float | None,
) -> torch.Tensor:
    rank = len(after)

    def along(units: torch.Tensor, axis: int) -> torch.Tensor:
        scale = scales[axis] if scales else None
        found: torch.Tensor = operator(
            units, _at(axis, after[axis], rank), corners, *_at(axis, scale, rank, None)
        )
        return found

    return _turned_back(given, before[2:], along)
