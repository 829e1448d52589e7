"""Operators that work on one element at a time, alone and in chains."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.operators.case import Call, Flags, OperatorCase, call

_IMAGE = (1, 64, 112, 112)
_ROWS = (128, 3072)

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "leaky relu": functools.partial(functional.leaky_relu, negative_slope=0.1),
    "elu": functional.elu,
    "selu": functional.selu,
    "gelu": functional.gelu,
    "gelu tanh": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "mish": functional.mish,
    "softplus": functional.softplus,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs() + 1.0),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1.0),
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "pow 3": lambda x: torch.pow(x, 3.0),
    "clamp": lambda x: torch.clamp(x, -1.0, 1.0),
    "round": torch.round,
    "floor": torch.floor,
}


def cases() -> Iterator[OperatorCase]:
    for name, function in _UNARY.items():
        yield call("pointwise", f"{name} 1x64x112x112", function, _IMAGE)
    for name, function in (("gelu", functional.gelu), ("exp", torch.exp), ("tanh", torch.tanh)):
        yield call("pointwise", f"{name} 128x3072", function, _ROWS)
    for name, shape in (
        ("same shape", _IMAGE),
        ("per channel", (1, 64, 1, 1)),
        ("per row", (112, 1)),
        ("one number", (1,)),
    ):
        yield call("binary", f"add 1x64x112x112, {name}", torch.add, _IMAGE, shape)
        yield call("binary", f"multiply 1x64x112x112, {name}", torch.mul, _IMAGE, shape)
    yield call("binary", "outer 1024x1 and 1x1024", torch.add, (1024, 1), (1, 1024))
    yield call("binary", "divide 1x64x112x112, same shape", torch.div, _IMAGE, _IMAGE)
    yield call("binary", "maximum 1x64x112x112, same shape", torch.maximum, _IMAGE, _IMAGE)
    yield call("binary", "compare 1x64x112x112", torch.gt, _IMAGE, _IMAGE)
    yield call("where", "1x64x112x112", torch.where, Flags(_IMAGE), _IMAGE, _IMAGE)
    yield call("where", "masked fill 12x128x128", _masked, (12, 128, 128), Flags((128, 128)))
    prelu = functools.partial(nn.PReLU, 64)
    yield OperatorCase("pointwise", "prelu 1x64x112x112", prelu, (_IMAGE,))
    yield call("chain", "scale, shift, silu, add", _scaled, _IMAGE, _IMAGE)
    yield call("chain", "gated gelu 128x3072", _gated, (128, 6144))
    yield call("chain", "rotary 12x128x64", _rotary, (12, 128, 64), (128, 64), (128, 64))
    shift = functools.partial(
        Call, lambda x, a, b: x * a + b, (torch.ones(64, 1, 1) * 0.7, torch.ones(64, 1, 1))
    )
    yield OperatorCase("chain", "affine per channel 1x64x112x112", shift, (_IMAGE,))


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask, -1e4)


def _scaled(x: Tensor, y: Tensor) -> Tensor:
    return functional.silu(x * 1.5 + 0.25) + y


def _gated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return first * functional.gelu(second)


def _rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine + turned * sine
