"""Pooling of any rank, and resizing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.nn import functional

from benchmarks.operators.case import OperatorCase, call

_Pool = tuple[str, Callable[..., nn.Module], tuple[Any, ...], dict[str, Any], tuple[int, ...]]

_POOLS: tuple[_Pool, ...] = (
    ("max 3x3 s2", nn.MaxPool2d, (3, 2, 1), {}, (1, 64, 112, 112)),
    ("max 2x2", nn.MaxPool2d, (2,), {}, (1, 64, 112, 112)),
    ("max 5x5 s1", nn.MaxPool2d, (5, 1, 2), {}, (1, 256, 20, 20)),
    ("max dilated", nn.MaxPool2d, (3, 1, 1), {"dilation": 2}, (1, 64, 56, 56)),
    ("max ceil", nn.MaxPool2d, (3, 2), {"ceil_mode": True}, (1, 64, 55, 55)),
    ("avg 3x3 s1", nn.AvgPool2d, (3, 1, 1), {}, (1, 192, 35, 35)),
    ("avg 2x2", nn.AvgPool2d, (2,), {}, (1, 256, 56, 56)),
    ("avg 3x3 inside", nn.AvgPool2d, (3, 2, 1), {"count_include_pad": False}, (1, 64, 56, 56)),
    ("global", nn.AdaptiveAvgPool2d, (1,), {}, (1, 1280, 7, 7)),
    ("global wide", nn.AdaptiveAvgPool2d, (1,), {}, (1, 256, 56, 56)),
    ("global max", nn.AdaptiveMaxPool2d, (1,), {}, (1, 512, 14, 14)),
    ("adaptive 7", nn.AdaptiveAvgPool2d, (7,), {}, (1, 256, 28, 28)),
    ("adaptive uneven 6", nn.AdaptiveAvgPool2d, (6,), {}, (1, 256, 20, 20)),
    ("max", nn.MaxPool1d, (3, 2, 1), {}, (1, 256, 400)),
    ("avg", nn.AvgPool1d, (4,), {}, (1, 256, 400)),
    ("adaptive 1", nn.AdaptiveAvgPool1d, (1,), {}, (1, 256, 400)),
    ("max", nn.MaxPool3d, (3, 2, 1), {}, (1, 32, 16, 56, 56)),
    ("avg", nn.AvgPool3d, (2,), {}, (1, 64, 8, 28, 28)),
    ("adaptive 1", nn.AdaptiveAvgPool3d, (1,), {}, (1, 512, 2, 7, 7)),
)  # fmt: skip

_RESIZES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 64, 56, 56), {"scale_factor": 2, "mode": "nearest"}),
    ((1, 256, 20, 20), {"scale_factor": 2, "mode": "nearest"}),
    ((1, 64, 56, 56), {"scale_factor": 2, "mode": "bilinear", "align_corners": False}),
    ((1, 21, 65, 65), {"size": (513, 513), "mode": "bilinear", "align_corners": False}),
    ((1, 64, 56, 56), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
    ((1, 64, 56, 56), {"scale_factor": 0.5, "mode": "bilinear", "align_corners": False}),
    ((1, 3, 64, 64), {"scale_factor": 4, "mode": "bicubic", "align_corners": False}),
    ((1, 64, 400), {"scale_factor": 2, "mode": "linear", "align_corners": False}),
    ((1, 64, 400), {"scale_factor": 2, "mode": "nearest"}),
    ((1, 32, 8, 14, 14), {"scale_factor": 2, "mode": "trilinear", "align_corners": False}),
    ((1, 32, 8, 14, 14), {"scale_factor": 2, "mode": "nearest"}),
)


def cases() -> Iterator[OperatorCase]:
    for name, layer, arguments, attributes, shape in _POOLS:
        make = functools.partial(layer, *arguments, **attributes)
        family = f"pool{len(shape) - 2}d"
        yield OperatorCase(family, f"{name} {'x'.join(map(str, shape[1:]))}", make, (shape,))
    for shape, attributes in _RESIZES:
        name = " ".join([*(f"{k}={v}" for k, v in attributes.items()), "x".join(map(str, shape))])
        yield call("resize", name, functools.partial(functional.interpolate, **attributes), shape)
