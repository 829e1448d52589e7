"""Convolutions and their transposes, in one, two and three dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.operators.case import OperatorCase

_PLAIN: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED: dict[int, type[nn.Module]] = {
    1: nn.ConvTranspose1d,
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
_Spec = tuple[str, int, int, tuple[int, ...], int, dict[str, Any]]

_CONVOLUTIONS: tuple[_Spec, ...] = (
    # name, channels in and out, image, kernel, attributes
    ("3x3", 64, 64, (56, 56), 3, {"padding": 1}),
    ("3x3 deep", 512, 512, (7, 7), 3, {"padding": 1}),
    ("1x1", 256, 64, (56, 56), 1, {}),
    ("first layer", 3, 64, (224, 224), 7, {"stride": 2, "padding": 3}),
    ("patches", 3, 384, (224, 224), 16, {"stride": 16}),
    ("strided", 128, 256, (28, 28), 3, {"stride": 2, "padding": 1}),
    ("dilated", 256, 256, (28, 28), 3, {"padding": 4, "dilation": 4}),
    ("grouped", 128, 128, (28, 28), 3, {"padding": 1, "groups": 32}),
    ("depthwise 3x3", 96, 96, (56, 56), 3, {"padding": 1, "groups": 96}),
    ("depthwise 7x7", 192, 192, (28, 28), 7, {"padding": 3, "groups": 192}),
    ("depthwise strided", 96, 96, (56, 56), 3, {"padding": 1, "stride": 2, "groups": 96}),
    ("one pixel", 960, 240, (1, 1), 1, {}),
    ("one pixel back", 240, 960, (1, 1), 1, {}),
    ("speech", 1, 128, (4000,), 10, {"stride": 5}),
    ("plain", 256, 256, (400,), 3, {"padding": 1}),
    ("strided", 256, 256, (400,), 3, {"stride": 2}),
    ("dilated", 128, 128, (1000,), 3, {"padding": 8, "dilation": 8}),
    ("grouped", 256, 256, (400,), 15, {"padding": 7, "groups": 16}),
    ("depthwise", 256, 256, (400,), 31, {"padding": 15, "groups": 256}),
    ("pointwise", 256, 512, (400,), 1, {}),
    ("plain", 32, 32, (16, 28, 28), 3, {"padding": 1}),
    ("strided", 32, 64, (16, 28, 28), 3, {"padding": 1, "stride": 2}),
    ("first layer", 3, 32, (16, 56, 56), (3, 7, 7), {"stride": (1, 2, 2), "padding": (1, 3, 3)}),
    ("dilated", 32, 32, (16, 28, 28), 3, {"padding": 2, "dilation": 2}),
    ("grouped", 64, 64, (8, 28, 28), 3, {"padding": 1, "groups": 8}),
    ("depthwise", 64, 64, (8, 28, 28), 3, {"padding": 1, "groups": 64}),
    ("temporal", 64, 64, (16, 14, 14), (3, 1, 1), {"padding": (1, 0, 0)}),
)  # type: ignore[assignment]

_TRANSPOSES: tuple[_Spec, ...] = (
    ("first", 100, 512, (1, 1), 4, {"bias": False}),
    ("4x4", 512, 256, (4, 4), 4, {"stride": 2, "padding": 1, "bias": False}),
    ("4x4 middle", 256, 128, (16, 16), 4, {"stride": 2, "padding": 1, "bias": False}),
    ("4x4 last", 64, 3, (32, 32), 4, {"stride": 2, "padding": 1, "bias": False}),
    ("2x2", 256, 128, (28, 28), 2, {"stride": 2}),
    ("3x3", 64, 64, (28, 28), 3, {"padding": 1}),
    ("output padding", 128, 64, (28, 28), 3, {"stride": 2, "padding": 1, "output_padding": 1}),
    ("dilated", 64, 64, (28, 28), 3, {"stride": 2, "padding": 2, "dilation": 2}),
    ("grouped", 128, 128, (28, 28), 4, {"stride": 2, "padding": 1, "groups": 8}),
    ("depthwise", 128, 128, (28, 28), 4, {"stride": 2, "padding": 1, "groups": 128}),
    ("plain", 256, 128, (200,), 16, {"stride": 8, "padding": 4}),
    ("grouped", 128, 128, (200,), 4, {"stride": 2, "padding": 1, "groups": 16}),
    ("plain", 64, 32, (8, 14, 14), 4, {"stride": 2, "padding": 1}),
    ("2x2x2", 64, 32, (8, 14, 14), 2, {"stride": 2}),
    ("grouped", 64, 64, (8, 14, 14), 4, {"stride": 2, "padding": 1, "groups": 8}),
)


def cases() -> Iterator[OperatorCase]:
    for transposed, specs in ((False, _CONVOLUTIONS), (True, _TRANSPOSES)):
        for name, channels, out, image, kernel, attributes in specs:
            rank = len(image)
            layer: Callable[..., nn.Module] = (_TRANSPOSED if transposed else _PLAIN)[rank]
            make = functools.partial(layer, channels, out, kernel, **attributes)
            family = f"conv{rank}d" + ("_transpose" if transposed else "")
            label = f"{name} {channels}x{'x'.join(map(str, image))} to {out}"
            shape = (1, channels, *image)
            yield OperatorCase(family, label, make, (shape,), _flops(make(), shape, transposed))
    batch = functools.partial(nn.Conv2d, 64, 64, 3, padding=1)
    flops = _flops(batch(), (8, 64, 28, 28), False)
    yield OperatorCase("conv2d", "3x3 batch 8 64x28x28", batch, ((8, 64, 28, 28),), flops)


def _flops(layer: nn.Module, shape: tuple[int, ...], transposed: bool) -> float:
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    with torch.device("meta"):
        result = layer.to("meta")(torch.empty(shape)).shape
    points = shape if transposed else result
    # Each point of the smaller image is multiplied with its share of the weights.
    per_point = weight.numel() / weight.shape[0]
    return float(2 * points[0] * math.prod(points[2:]) * points[1] * per_point)
