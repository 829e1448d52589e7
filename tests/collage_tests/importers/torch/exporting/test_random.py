"""Modules that draw random numbers are refused, with what draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn

DRAWN: dict[str, Callable[[Any], Any]] = {
    "randn_like": lambda x: x + torch.randn_like(x),
    "randn": lambda x: x + torch.randn(4),
    "exponential": lambda x: nn.functional.gumbel_softmax(x),
    "rand_like": lambda x: x + torch.rand_like(x),
    "rand": lambda x: torch.bernoulli(x.sigmoid()),
    "normal_functional": lambda x: x + torch.empty(4).normal_(),
    "rrelu_with_noise_functional": lambda x: nn.functional.rrelu(x, training=True),
}


@pytest.mark.parametrize("case", DRAWN)
def test_random_numbers_are_refused(case: str) -> None:
    with pytest.raises(ModelError, match=f"{case}.*: it draws random numbers"):
        load_model(program_of(DRAWN[case], rows(2, 4)))


class _Seeded(nn.Module):  # type: ignore[misc,name-defined]
    """Random numbers from a generator of its own, or from one that is made in each call."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = torch.Generator().manual_seed(3) if kept else None

    def forward(self, x: Any) -> Any:
        generator = self.kept or torch.Generator().manual_seed(3)
        return x + torch.randn(x.shape, generator=generator)


@pytest.mark.parametrize("kept", [True, False])
def test_generators_of_random_numbers_are_refused_by_what_asks_them(kept: bool) -> None:
    with pytest.raises(ModelError, match=r"torch.Generator \(randn\); draw them outside"):
        load_model(_Seeded(kept), example_inputs=(rows(2, 4),))
