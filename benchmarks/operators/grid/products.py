"""Matrix products of all proportions, contractions and attention."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.operators.case import OperatorCase, call

_LINEAR = (
    (1, 768, 3072),
    (1, 4096, 4096),
    (1, 960, 240),
    (1, 2048, 1000),
    (8, 768, 768),
    (128, 768, 768),
    (128, 768, 3072),
    (197, 384, 1152),
    (128, 768, 50257),
    (4096, 64, 256),
)
_BATCHED = (
    (12, 128, 64, 128),
    (12, 128, 128, 64),
    (64, 49, 32, 49),
    (256, 16, 16, 16),
    (8, 1, 64, 512),
    (3, 1024, 512, 256),
)

_EINSUMS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("bhid,bhjd->bhij", ((1, 12, 128, 64), (1, 12, 128, 64))),
    ("bhij,bhjd->bihd", ((1, 12, 128, 128), (1, 12, 128, 64))),
    ("bchw,kc->bkhw", ((1, 64, 28, 28), (128, 64))),
    ("nctv,vw->nctw", ((1, 64, 100, 25), (25, 25))),
    ("bhwc,hkc->bhwk", ((8, 14, 14, 64), (14, 14, 64))),
)


def cases() -> Iterator[OperatorCase]:
    for rows, inner, columns in _LINEAR:
        make = functools.partial(nn.Linear, inner, columns)
        family = "gemv" if rows == 1 else "linear"
        name = f"{rows}x{inner} to {columns}"
        flops = 2.0 * rows * inner * columns
        yield OperatorCase(family, name, make, ((rows, inner),), flops)
    for batch, rows, inner, columns in _BATCHED:
        name, flops = f"{batch}x{rows}x{inner}x{columns}", 2.0 * batch * rows * inner * columns
        shapes = ((batch, rows, inner), (batch, inner, columns))
        yield call("matmul", name, torch.matmul, *shapes, flops=flops)
    yield call("matmul", "vector 1000x512", torch.mv, (1000, 512), (512,), flops=2 * 512e3)
    yield call(
        "matmul", "broadcast 8x12x64x64 by 64x64", torch.matmul, (8, 12, 64, 64), (64, 64),
        flops=2.0 * 96 * 64**3,
    )  # fmt: skip
    for equation, operands in _EINSUMS:
        yield call("einsum", equation, functools.partial(torch.einsum, equation), *operands)
    for heads, length, size, causal in (
        (12, 128, 64, False),
        (12, 197, 64, False),
        (16, 256, 64, True),
    ):
        shape = (1, heads, length, size)
        function = functools.partial(functional.scaled_dot_product_attention, is_causal=causal)
        name = f"{heads} heads of {size}, {length} long{', causal' if causal else ''}"
        flops = 4.0 * heads * length * length * size
        yield call("attention", name, function, shape, shape, shape, flops=flops)
    yield OperatorCase(
        "attention", "squeeze and excitation 96x56x56", _Excitation, ((1, 96, 56, 56),)
    )


class _Excitation(nn.Module):
    """Two products on an image of one pixel, and the scaling that they decide."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(96, 24, 1), nn.Conv2d(24, 96, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = functional.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.up(scale))
