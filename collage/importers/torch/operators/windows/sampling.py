"""Volumes looked up at places of their own, and convolutions that read beside their places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.deformed import DeformedWindow, deformed_convolution, pair
from collage.importers.torch.operators.arguments import Importer, arguments, shape_of

_NEAREST = 1
_BORDER, _REFLECTED = 1, 2


def _volume_sampled(
    x: torch.Tensor, grid: torch.Tensor, how: int, beyond: int, corners: bool
) -> torch.Tensor:
    """``grid_sample`` of volumes: between eight elements, or the nearest."""
    extents = x.shape[2:]
    batch, channels, size = x.shape[0], x.shape[1], grid.shape[1:4]
    places = [
        _beyond(_in_elements(grid[..., 2 - axis], extent, corners), extent, beyond, corners)
        for axis, extent in enumerate(extents)
    ]
    flat = x.reshape(batch, channels, -1)
    near = how == _NEAREST
    steps = itertools.product((0,) if near else (0, 1), repeat=3)
    lows = [torch.round(place) if near else torch.floor(place) for place in places]
    total = None
    for step in steps:
        number, weight = None, None
        for axis, extent in enumerate(extents):
            place = lows[axis] + step[axis]
            kept = place.clamp(0, extent - 1)
            share = torch.where(place == kept, torch.ones_like(place), torch.zeros_like(place))
            if not near:
                share = share * (1 - (places[axis] - place).abs())
            whole = kept.to(torch.int64)
            number = whole if number is None else number * extent + whole
            weight = share if weight is None else weight * share
        assert number is not None and weight is not None
        index = number.reshape(batch, 1, -1).expand(batch, channels, math.prod(size))
        part = flat.gather(2, index) * weight.reshape(batch, 1, -1)
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(batch, channels, *size)


def _in_elements(place: torch.Tensor, extent: int, corners: bool) -> torch.Tensor:
    """From -1 and 1, which are the outer elements' middles, or their outer borders."""
    return (place + 1) / 2 * (extent - 1) if corners else ((place + 1) * extent - 1) / 2


def _beyond(place: torch.Tensor, extent: int, beyond: int, corners: bool) -> torch.Tensor:
    if beyond == _REFLECTED:
        low, length = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        if not length:
            return torch.zeros_like(place)
        away = (place - low).abs()
        turns = torch.floor(away / length)
        rest = away - turns * length
        odd = turns - 2 * torch.floor(turns / 2)
        place = torch.where(odd == 0, rest, length - rest) + low
    if beyond in (_BORDER, _REFLECTED):
        return place.clamp(0, extent - 1)
    # Far outside it is nothing, however far: whole numbers stay small.
    return place.clamp(-2, extent + 1)


def _deform_conv2d(importer: Importer, node: fx.Node) -> relax.Expr:
    """torchvision's deformable convolution."""
    x, weight, offset, mask, bias, use_mask, groups, offset_groups = arguments(
        *(importer, node, "input", "weight", "offset", "mask", "bias", "use_mask"),
        *("groups", "offset_groups"),
    )
    strides, pads, dilations = (
        pair(*arguments(importer, node, f"{name}_h", f"{name}_w"))
        for name in ("stride", "pad", "dilation")
    )
    window = DeformedWindow(strides, dilations, pads, int(groups), int(offset_groups))
    given = mask if use_mask else None
    found = importer.emit(deformed_convolution(importer.emit, x, weight, offset, given, window))
    wide = importer.emit(op.reshape(bias, [1, shape_of(weight)[0], 1, 1]))
    return importer.emit(op.add(found, wide))


def sampled() -> dict[Any, Callable[..., Any]]:
    """What takes operators apart, by operator."""
    return {torch.ops.aten.grid_sampler_3d.default: _volume_sampled}


SAMPLED: dict[str, Callable[[Importer, fx.Node], Any]] = {"deform_conv2d.default": _deform_conv2d}
"""By the name that the translator has for an operator."""
