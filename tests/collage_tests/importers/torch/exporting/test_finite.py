"""Modules that look whether numbers overflowed are compiled as they run where none did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
from collage.importers.torch import export_module

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

ASKING: dict[str, Callable[[Any], Any]] = {
    "not all are finite": lambda x: not torch.isfinite(x).all(),
    "some are infinite, or some no numbers": lambda x: torch.isinf(x).any() or x.isnan().any(),
    "an item": lambda x: (~torch.isfinite(x)).any().item(),
    "as many as that": lambda x: torch.logical_or(torch.isinf(x), torch.isnan(x)).sum() > 0,
    "either": lambda x: (x.isposinf() | x.isneginf()).any(),
    "a count": lambda x: torch.count_nonzero(torch.isnan(x)).item() != 0,
}


class Clamped(torch.nn.Module):
    def __init__(self, overflowed: Callable[[Any], Any]) -> None:
        super().__init__()
        self.dense, self.overflowed = torch.nn.Linear(8, 8), overflowed

    def forward(self, x: Any) -> Any:
        x = self.dense(x)
        if self.overflowed(x):
            x = x.clamp(-1.0, 1.0)
        return torch.nn.functional.gelu(x)


@pytest.mark.parametrize("asking", ASKING)
def test_is_exported_as_it_runs_on_finite_numbers(asking: str) -> None:
    module, own = Clamped(ASKING[asking]).half().eval(), torch.Tensor.__bool__
    with pytest.warns(UserWarning, match="where numbers overflow is left out"):
        program = export_module(module, torch.zeros(2, 8).half()).program
    x = 4 * torch.randn(2, 8).half()
    assert torch.equal(program.module()(x), module(x))
    assert torch.Tensor.__bool__ is own


@pytest.mark.parametrize(
    "asking", [lambda x: x.sum() > 0, lambda x: torch.isinf(x).sum() > x.sum()]
)
def test_other_questions_are_still_refused(asking: Callable[[Any], Any]) -> None:
    with pytest.raises(ModelError, match=r"what runs depends on what tensors hold at .*finite\.py"):
        export_module(Clamped(asking), torch.zeros(2, 8))
