"""Operators on single elements and their types, each beside PyTorch on fresh random inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    places,
    program_of,
    require_agreement,
    rows,
)
from tests.collage_tests.normalize.oracle import run

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional

ODD = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.5, math.inf, -math.inf, math.nan, 2.0**-14, 6e4, 1e-40])
"""Numbers at the ends of their types, the last with fewer digits than others have."""

CASES: Cases = {
    "elu": (lambda x: F.elu(x, 0.7), lambda: (rows(3, 40),)),
    "selu": (F.selu, lambda: (rows(3, 40),)),
    "rrelu": (lambda x: F.rrelu(x, 0.2, 0.5), lambda: (rows(3, 40),)),
    "rounded to steps": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        lambda: (rows(4, 50),),
    ),
    "rounded to steps that are given": (
        lambda x, s: torch.fake_quantize_per_tensor_affine(x, s, torch.tensor(2).int(), 0, 15),
        lambda: (rows(4, 50), torch.tensor(0.13)),
    ),
    "rounded to each channel's steps": (
        lambda x, s: torch.fake_quantize_per_channel_affine(
            x, s, torch.tensor([0, 1, -2, 3]).int(), 1, -8, 7
        ),
        lambda: (rows(3, 4, 50), torch.tensor([0.05, 0.11, 0.2, 0.07])),
    ),
    "celu": (lambda x: F.celu(x, 1.7), lambda: (rows(3, 40),)),
    **{
        f"element type {dtype}": (
            lambda x, dtype=dtype: torch.ops.prims.convert_element_type(x * 3, dtype),
            lambda: (rows(3, 4),),
        )
        for dtype in (torch.float16, torch.float64, torch.int64, torch.bool)
    },
    "numbers that fall": (lambda x: x + torch.arange(24, 0, -5), lambda: (rows(5),)),
    "numbers in broken steps": (
        lambda x: x + torch.arange(0, 1, 0.1) + torch.arange(3.5)[:1],
        lambda: (rows(10),),
    ),
    "numbers in half precision": (
        lambda x: x + torch.arange(2, -3, -0.5, dtype=torch.bfloat16).float(),
        lambda: (rows(10),),
    ),
    "joined with nothing": (
        lambda x: (torch.cat([torch.tensor([]), x], 1), torch.cat([x[0, 0, :0], x[0, 0]])),
        lambda: (rows(2, 3, 4),),
    ),
    "joined, of two types": (
        lambda x, i: (torch.cat([x, i, i > 1]), torch.cat([i.int(), i]), torch.stack([i > 1, i])),
        lambda: (rows(3, 4), places(4, 3, 4)),
    ),
    "whole numbers divided": (lambda i: i / 3, lambda: (places(50, 4, 5),)),
    "bytes scaled": (lambda x: torch.tanh(x.mul(9).abs().byte() / 255.0), lambda: (rows(5),)),
    "logarithm of whole numbers": (lambda i: torch.log(i + 1), lambda: (places(9, 4),)),
    "truth value times number": (lambda x: (x > 0) * x, lambda: (rows(3, 7),)),
    "a choice": (lambda x, i: torch.where(i > 1, x, i), lambda: (rows(4, 3), places(4, 4, 3))),
    "filled": (lambda x: x.masked_fill(x > 0, -1.0), lambda: (rows(4, 3),)),
    "floored quotients": (
        lambda x, i: (torch.div(x, 0.7, rounding_mode="floor"), i // 2, (i + 0.5) // 2),
        lambda: (rows(9), places(9, 5) - 4),
    ),
    "quotients cut off": (
        lambda x, i: (
            torch.div(x, 0.7, rounding_mode="trunc"),
            torch.div(i, 3, rounding_mode="trunc"),
        ),
        lambda: (rows(9), places(9, 12) - 4),
    ),
    **{
        f"rounded quotients, {kind}": (
            lambda x, i: tuple(
                found.float()
                for one in (x, i.to(x.dtype), i)
                for mode in ("floor", "trunc")
                for found in (
                    torch.div(one, 0.7, rounding_mode=mode),
                    torch.div(one, -0.1, rounding_mode=mode),
                    # Of two tensors PyTorch rounds the quotient to half precision first.
                    torch.div(one.float(), x.float(), rounding_mode=mode),
                    one // torch.zeros(1, dtype=x.dtype),
                )
            ),
            lambda kind=kind: (rows(2000).to(kind), places(40, 2000) - 20),
        )
        for kind in (torch.bfloat16, torch.float16, torch.float32)
    },
    "whole numbers bounded": (
        lambda i: (i.clamp(max=7), i.clamp(min=3), i.clamp(2, 9)),
        lambda: (places(12, 40),),
    ),
    "bounded by tensors": (
        lambda x, y: (x.clamp(min=y), x.clamp(y, y + 1), x.clamp_max(0.3), x.clamp_min(0.1)),
        lambda: (rows(5, 7), rows(7)),
    ),
    "the number of two": (
        lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)),
        lambda: (torch.tensor([math.nan, 1, math.nan, 2]), torch.tensor([3, math.nan] * 2)),
    ),
    **{
        f"numbers beside each other, {kind}": (
            lambda x, y, kind=kind: torch.nextafter(x.to(kind), y.to(kind)),
            lambda: tuple(x.reshape(-1) for x in torch.meshgrid(ODD, ODD.clone(), indexing="ij")),
        )
        for kind in (torch.float32, torch.float64)
    },
    **{
        f"fractions and exponents, {kind}": (
            lambda x, kind=kind: torch.frexp(x.to(kind)),
            lambda: (torch.cat([ODD[:-1], rows(50) * 1e3]),),
        )
        for kind in (torch.float16, torch.float32, torch.float64)
    },
    **{
        f"bits of {one} as {two}": (
            lambda x, one=one, two=two: x.to(one).view(two),
            lambda: (rows(3, 8) * 50,),
        )
        for one, two in (
            (torch.float32, torch.int32),
            (torch.float32, torch.uint8),
            (torch.float16, torch.int64),
            (torch.int8, torch.int16),
            (torch.uint8, torch.float32),
            (torch.int64, torch.float64),
            (torch.bool, torch.uint8),
        )
    },
    "bytes beside negative numbers": (
        lambda x: (x.byte() + (-3), torch.sub(x.byte(), x.byte(), alpha=-3), x.byte() - 300),
        lambda: (places(250, 40),),
    ),
    "quotients of bytes": (
        lambda x, y: torch.div(x.byte(), y.byte() + 1, rounding_mode="trunc"),
        lambda: (places(250, 40), places(20, 40)),
    ),
    "two to the power": (torch.exp2, lambda: (rows(3, 40),)),
}


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("bounds", [{"max": 7}, {"min": 3}, {"min": 2, "max": 9}])
def test_whole_numbers_are_bounded_in_what_is_compiled(bounds: dict[str, int]) -> None:
    i = places(12, 40)
    mod = normalize(load_model(program_of(lambda i: i.clamp(**bounds), i)).mod)
    np.testing.assert_array_equal(run(mod, [i.numpy()])[0], i.clamp(**bounds).numpy())


@pytest.mark.parametrize("draw", [torch.rand_like, torch.poisson, lambda x: x.multinomial(2)])
def test_what_draws_random_numbers_is_refused_as_such(draw: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="draws random numbers"):
        load_model(program_of(lambda x: x + draw(x).sum(), rows(3, 4).abs()))


def test_all_that_is_missing_is_named_at_once() -> None:
    def function(x: Any) -> Any:
        return torch.special.laguerre_polynomial_l(x, x) + torch.linalg.ldl_factor_ex(x)[0]

    with pytest.raises(ModelError, match="cannot be imported") as caught:
        load_model(program_of(function, rows(4, 4)))
    assert "laguerre_polynomial_l" in str(caught.value) and "linalg_ldl_factor_ex" in str(
        caught.value
    )
