"""Modules that look at what tensors hold, and raise or warn, are compiled as they run where they do
not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
from collage.importers.torch import export_module

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def _raises(x: Any) -> None:
    if torch.min(x) < -100 or x.max() > 100:
        message = "outside"
        raise ValueError(message)


def _asserts(x: Any) -> None:
    assert (x > -50).all() and not (x == 3.25).any(), "not there"


def _item(x: Any) -> None:
    if (x.sum() > 1e9).item():
        raise ValueError


def _of_torch(x: Any) -> None:
    torch._assert(x.max() < 70, "too large")


def _counts(x: Any) -> None:
    if (x > 0).sum().item() > 1000:
        raise ValueError


def _else_raises(x: Any) -> None:
    if torch.isfinite(x).all() and x.min() > -90:
        pass
    else:
        raise ValueError


def _only_warns(x: Any) -> None:
    if x.abs().max() > 1e6:
        warnings.warn("large", stacklevel=2)


def _some(x: Any) -> None:
    if any(one.min() < -100 for one in x.unbind()):
        raise ValueError


CHECKS = [_raises, _asserts, _item, _of_torch, _counts, _else_raises, _only_warns, _some]


class Checked(torch.nn.Module):
    def __init__(self, check: Callable[[Any], None]) -> None:
        super().__init__()
        self.dense, self.check = torch.nn.Linear(8, 8), check

    def forward(self, x: Any) -> Any:
        self.check(x)
        return self.dense(x).relu()


@pytest.mark.parametrize("check", CHECKS)
def test_is_exported_as_it_runs_where_nothing_is_wrong(check: Callable[[Any], None]) -> None:
    module, own = Checked(check).eval(), (torch.Tensor.__bool__, torch.SymBool.__bool__)
    with pytest.warns(UserWarning, match=r"what is checked at .*\.py:\d+ is left out"):
        program = export_module(module, torch.randn(3, 8)).program
    x = torch.randn(3, 8)
    assert torch.equal(program.module()(x), module(x))
    assert own == (torch.Tensor.__bool__, torch.SymBool.__bool__)


def test_a_check_of_shapes_is_not_left_out() -> None:
    class Known(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            assert x.shape[0] > 1 and x.dim() == 2
            return x * 2

    x, rows = torch.randn(3, 8), torch.export.Dim("rows", min=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = export_module(Known(), x, {"x": {0: rows}}).program
    assert torch.equal(program.module()(x), Known()(x))


def test_another_branch_is_refused_with_its_place() -> None:
    class Other(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if x.min() < -100:
                raise ValueError
            if x.sum() > 0:
                x = x * 2
            return x

    with pytest.raises(ModelError, match=r"what tensors hold at .*test_checks\.py:\d+; write"):
        export_module(Other(), torch.randn(3, 8))


def test_a_branch_beside_a_warning_is_refused() -> None:
    class Other(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if x.sum() > 0:
                print("positive")
            else:
                x = x * 2
            return x

    with pytest.raises(ModelError, match=r"what tensors hold at .*test_checks\.py:\d+; write"):
        export_module(Other(), torch.randn(3, 8))


class Where(torch.nn.Module):
    """Asks whether a mask holds anywhere, before it writes where it holds."""

    def __init__(self, elsewhere: bool = False) -> None:
        super().__init__()
        self.elsewhere = elsewhere

    def forward(self, x: Any) -> Any:
        mask, y = x > 0, torch.zeros_like(x)
        if self.elsewhere:
            if torch.any(mask):
                y[mask] = x[mask].sqrt()
                y[~mask] = 1
        elif mask.any():
            rows = x[mask]
            y[mask] = rows.sqrt()
        if (x > 100).sum() > 10:
            raise ValueError
        return y


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_branch_that_writes_where_its_mask_holds_is_no_check(sign: float) -> None:
    module = Where()
    with pytest.warns(UserWarning, match=r"what is checked at [^ ,]*\.py:\d+ is left out"):
        program = export_module(module, torch.randn(3, 8)).program
    x = sign * torch.rand(3, 8)
    assert torch.equal(program.module()(x), module(x))


def test_a_branch_that_writes_elsewhere_is_refused() -> None:
    with pytest.raises(ModelError, match=r"what tensors hold at .*test_checks\.py:\d+; write"):
        export_module(Where(elsewhere=True), torch.randn(3, 8))
