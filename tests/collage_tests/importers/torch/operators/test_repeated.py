"""Functions that take as many steps as data say, beside PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of, require_agreement, rows
from tests.collage_tests.normalize.oracle import run

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_common_divisors_and_multiples_of_whole_numbers(dtype: str) -> None:
    kind = getattr(torch, dtype)
    low, high = (0, 12) if dtype == "uint8" else (-11, 12)
    x = torch.randint(low, high, (4, 30)).to(kind)
    y = torch.randint(low, high, (30,)).to(kind)
    x[:, :3], y[2:5] = 0, 0
    require_agreement(lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), lambda: (x, y))


def test_operands_of_two_types_are_taken_in_the_wider_one() -> None:
    x = torch.randint(-(2**40), 2**40, (20,))
    y = torch.randint(-90, 90, (3, 20)).to(torch.int32)
    require_agreement(torch.gcd, lambda: (x, y))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 5000.0])
def test_shares_of_the_gamma_function(scale: float) -> None:
    a, x = rows(4, 100).abs() * scale, rows(4, 100).abs() * scale
    # Where an order is large, all that is between 0 and 1 lies near it.
    x[:2] = a[:2] * (1 + rows(2, 100) / (1 + a[:2]).sqrt())
    module = load_model(program_of(lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)), a, x))
    found = run(module.mod, [a.numpy(), x.abs().numpy()])
    wide = a.double(), x.abs().double()
    for ours, wanted in zip(found, (torch.igamma(*wide), torch.igammac(*wide)), strict=True):
        np.testing.assert_allclose(ours, wanted.numpy(), rtol=2e-6, atol=1e-30)


def test_shares_at_the_ends() -> None:
    ends = torch.tensor([0.0, 1.5, math.inf, -1.0, math.nan])
    a, x = (each.flatten() for each in torch.meshgrid(ends, ends, indexing="ij"))
    module = load_model(program_of(lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)), a, x))
    for ours, wanted in zip(
        run(module.mod, [a.numpy(), x.numpy()]),
        (torch.igamma(a, x), torch.igammac(a, x)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, wanted.numpy(), rtol=2e-6)


def test_shares_in_double_precision_are_refused() -> None:
    with pytest.raises(ModelError, match="float32 alone"):
        load_model(program_of(torch.igamma, rows(3).double(), rows(3).double()))
