"""Norms of all kinds, and softmax."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from benchmarks.operators.case import OperatorCase, call

_Shape = tuple[int, ...]
_LAYER_NORMS: tuple[tuple[_Shape, _Shape], ...] = (
    ((1, 128, 768), (768,)),
    ((1, 3136, 96), (96,)),
    ((8, 512, 1024), (1024,)),
    ((1, 64, 28, 28), (64, 28, 28)),
)
_GROUP_NORMS: tuple[tuple[int, _Shape], ...] = (
    (32, (1, 384, 64, 64)),
    (32, (1, 320, 32, 32)),
    (8, (1, 64, 8, 28, 28)),
    (1, (1, 512, 400)),
)
_SOFTMAXES: tuple[tuple[_Shape, int], ...] = (
    ((12, 128, 128), -1),
    ((1, 50257), -1),
    ((4096, 1000), -1),
    ((64, 3, 49, 49), -1),
    ((1, 21, 128, 128), 1),
    ((1, 8400, 4, 16), 2),
    ((128, 256), 0),
)


def cases() -> Iterator[OperatorCase]:
    for shape, axes in _LAYER_NORMS:
        yield _module("layer_norm", functools.partial(nn.LayerNorm, axes), shape)
    yield call("layer_norm", "channels first 1x96x56x56", _channels_first, (1, 96, 56, 56))
    for groups, shape in _GROUP_NORMS:
        make = functools.partial(nn.GroupNorm, groups, shape[1])
        yield _module("group_norm", make, shape, f"{groups} groups of ")
    yield _module("instance_norm", functools.partial(nn.InstanceNorm2d, 64), (1, 64, 112, 112))
    yield _module(
        "instance_norm", functools.partial(nn.InstanceNorm3d, 32, affine=True), (1, 32, 16, 28, 28)
    )
    yield _module("batch_norm", functools.partial(nn.BatchNorm2d, 64), (1, 64, 112, 112))
    yield _module("batch_norm", functools.partial(nn.BatchNorm1d, 256), (1, 256, 400))
    yield _module("batch_norm", functools.partial(nn.BatchNorm3d, 64), (1, 64, 8, 28, 28))
    yield _module("rms_norm", functools.partial(nn.RMSNorm, 2048), (1, 128, 2048))
    yield _module("rms_norm", functools.partial(nn.RMSNorm, 64), (1, 16, 256, 64))
    normalize = functools.partial(functional.normalize, dim=1)
    yield call("l2_norm", "axis 1 of 1x128x56x56", normalize, (1, 128, 56, 56))
    for name, function in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
        for shape, axis in _SOFTMAXES:
            yield call(name, _along(shape, axis), functools.partial(function, dim=axis), shape)


def _channels_first(x: torch.Tensor) -> torch.Tensor:
    """As ConvNeXt writes it."""
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).pow(2).mean(1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-6)


def _module(
    family: str, make: functools.partial[nn.Module], shape: tuple[int, ...], before: str = ""
) -> OperatorCase:
    return OperatorCase(family, before + "x".join(map(str, shape)), make, (shape,))


def _along(shape: tuple[int, ...], axis: int) -> str:
    return f"axis {axis} of {'x'.join(map(str, shape))}"
