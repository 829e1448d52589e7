"""Images read at places that data or another size give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.operators.case import OperatorCase, call

_POOLS: tuple[tuple[str, Callable[..., nn.Module], tuple[int, ...]], ...] = (
    (
        "adaptive avg 3-D",
        functools.partial(nn.AdaptiveAvgPool3d, (3, 5, 5)),
        (1, 32, 8, 28, 28),
    ),
    (
        "adaptive max 3-D",
        functools.partial(nn.AdaptiveMaxPool3d, (3, 5, 5)),
        (1, 32, 8, 28, 28),
    ),
    ("lp 2-D", functools.partial(nn.LPPool2d, 2, 3, 2), (1, 64, 56, 56)),
    ("lp 1-D", functools.partial(nn.LPPool1d, 3, 4), (1, 256, 400)),
    (
        "max with places",
        functools.partial(nn.MaxPool2d, 2, return_indices=True),
        (1, 64, 56, 56),
    ),
)


def cases() -> Iterator[OperatorCase]:
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            function = functools.partial(_sampled, mode=mode, padding=padding)
            name = f"{mode} {padding} 1x64x56x56"
            yield call("grid_sample", name, function, (1, 64, 56, 56), (1, 56, 56, 2))
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection")):
        function = functools.partial(_sampled, mode=mode, padding=padding)
        name = f"{mode} {padding} 1x16x8x28x28"
        yield call("grid_sample", name, function, (1, 16, 8, 28, 28), (1, 8, 28, 28, 3))
    yield call(
        "grid_sample",
        "bilinear 1x3x224x224",
        functools.partial(_sampled, mode="bilinear", padding="zeros"),
        (1, 3, 224, 224),
        (1, 224, 224, 2),
    )
    for mode in ("bilinear", "bicubic"):
        for size, shape in (
            ((100, 100), (1, 3, 224, 224)),
            ((28, 28), (1, 64, 56, 56)),
            ((224, 224), (1, 3, 100, 130)),
        ):
            function = functools.partial(
                functional.interpolate, size=size, mode=mode, antialias=True
            )
            name = f"{mode} antialias to {size[0]}x{size[1]} {'x'.join(map(str, shape))}"
            yield call("resize", name, function, shape)
    yield call("resize", "affine grid 1x64x56x56", _affine, (1, 64, 56, 56), (1, 2, 3))
    yield call(
        "detection", "roi_align 7 of 100 boxes 1x64x56x56", _aligned, (1, 64, 56, 56), (100, 4)
    )
    yield call(
        "detection", "roi_pool 7 of 100 boxes 1x64x56x56", _pooled, (1, 64, 56, 56), (100, 4)
    )
    yield call(
        "detection",
        "deformed convolution 32x28x28",
        _deformed,
        (1, 32, 28, 28),
        (1, 18, 28, 28),
        (32, 32, 3, 3),
    )
    yield call("detection", "overlaps of 300 and 300 boxes", _overlaps, (300, 4), (300, 4))
    for name, make, extents in _POOLS:
        yield OperatorCase(
            "pool",
            f"{name} {'x'.join(map(str, extents[1:]))}",
            make,
            (extents,),
        )


def _sampled(x: Tensor, grid: Tensor, mode: str, padding: str) -> Tensor:
    return functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=False)


def _affine(x: Tensor, theta: Tensor) -> Tensor:
    return functional.grid_sample(
        x, functional.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False
    )


def _boxes(x: Tensor) -> Tensor:
    corner = torch.sigmoid(x[:, :2]) * 150.0
    return torch.cat([corner, corner + 4.0 + x[:, 2:].abs() * 30.0], 1)


def _aligned(x: Tensor, boxes: Tensor) -> Tensor:
    from torchvision.ops import roi_align

    which = torch.zeros_like(boxes[:, :1])
    return roi_align(x, torch.cat([which, _boxes(boxes)], 1), 7, 0.25, 2)


def _pooled(x: Tensor, boxes: Tensor) -> Tensor:
    from torchvision.ops import roi_pool

    which = torch.zeros_like(boxes[:, :1])
    return roi_pool(x, torch.cat([which, _boxes(boxes)], 1), 7, 0.25)


def _deformed(x: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    from torchvision.ops import deform_conv2d

    return deform_conv2d(x, offset, weight, padding=1)


def _overlaps(one: Tensor, two: Tensor) -> Tensor:
    from torchvision.ops import box_iou

    return box_iou(_boxes(one), _boxes(two))
