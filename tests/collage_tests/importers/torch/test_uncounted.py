"""Groups of rows with layers of their own, and places that are filled with one value: for all rows,
however many there are of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Experts(torch.nn.Module):
    """Rows sorted by their experts, in two steps, as in JetMoe and earlier Granite models."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.norm = torch.nn.Linear(8, 3), torch.nn.LayerNorm(16)
        self.first = torch.nn.ModuleList(torch.nn.Linear(8, 16) for _ in range(3))
        self.second = torch.nn.ParameterList(torch.randn(8, 16) for _ in range(3))

    def forward(self, x: Any) -> Any:
        chosen = self.router(x).argmax(-1)
        order = chosen.argsort(stable=True)
        sizes = torch.nn.functional.one_hot(chosen, 3).sum(0).tolist()
        rows = x[order].split(sizes, dim=0)
        parts = [
            self.norm(each(one)).chunk(2, dim=-1)
            for each, one in zip(self.first, rows, strict=True)
        ]
        rows = torch.cat([torch.nn.functional.silu(a) * b for a, b in parts])
        rows = torch.cat([rows, 2 * rows], -1).split(sizes)
        rows = torch.cat(
            [torch.nn.functional.linear(a, b) for a, b in zip(rows, self.second, strict=True)]
        )
        return torch.zeros_like(x).index_add(0, order, rows)


class Filled(torch.nn.Module):
    """What sees nothing sees everything, as OneFormer's decoder has it."""

    def forward(self, x: Any) -> Any:
        mask = x > 0.5
        mask[torch.where(mask.sum(-1) == 0)] = True
        rows = x.clone()
        rows[torch.where(x.amax(-1) > 1.5)] = -1.0
        return torch.where(mask, rows, 0.0)


def _given(module: Any, *inputs: Any) -> Any:
    """What the imported module gives."""
    model = load_model(module, example_inputs=tuple(map(torch.rand_like, inputs)))
    return evaluate(model.mod, [one.numpy() for one in inputs])[0]


@pytest.mark.parametrize("bias", [0.0, 100.0], ids=["mixed", "all to one"])
def test_groups_of_rows(bias: float) -> None:
    """Also where groups are empty."""
    module, x = Experts().eval(), torch.randn(10, 8)
    with torch.no_grad():
        module.router.bias[1] += bias
        np.testing.assert_allclose(_given(module, x), module(x).numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_program_is_left_as_it_was() -> None:
    module, x = Experts().eval(), torch.randn(10, 8)
    program = torch.export.export(module, (x,))
    before = str(program.graph)
    found = evaluate(load_model(program).mod, [x.numpy()])[0]
    with torch.no_grad():
        np.testing.assert_allclose(found, module(x).numpy(), rtol=1e-4, atol=1e-5)
    assert str(program.graph) == before


def test_groups_that_are_not_computed_row_by_row_are_refused() -> None:
    class Mixing(Experts):
        def forward(self, x: Any) -> Any:
            sizes = (x > 0).sum(0)[:2].clamp(max=1).tolist()
            rows = x[:2].split([sizes[0], 2 - sizes[0]])
            return torch.cat([one - one.sum(0) for one in rows])

    with pytest.raises(ModelError, match="depends on data"):
        load_model(Mixing().eval(), example_inputs=(torch.randn(4, 8),))


def test_places_of_a_mask_of_several_axes_are_filled() -> None:
    x = torch.randn(3, 5, 4)
    np.testing.assert_array_equal(_given(Filled(), x), Filled()(x).numpy())
