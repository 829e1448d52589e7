"""What is traced is held against the module, and where it cannot be, that is said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from collage.backends.contract.errors import ModelError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


class Counted(torch.nn.Module):  # type: ignore[misc,name-defined]
    """With statistics that a call writes."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return x * self.factor


def _held(
    program: Any, module: Any, *inputs: Any, running: Callable[..., Any] | None = None
) -> None:
    from collage.importers.torch.exporting.eager import require_same

    require_same(program, module, inputs, {}, lambda _: nullcontext(), running=running)


def _traced(module: Any, *inputs: Any) -> Any:
    return torch.export.export(module, inputs)


class Many(Counted):
    """Its code asks for sizes, which PyTorch guards."""

    def forward(self, x: Any, y: Any) -> Any:
        self.calls.add_(1)
        many = x.shape[0] * y.shape[0] > 7
        return (x if many else x * self.factor).sum() + y.sum()


def test_guards_of_pytorch_do_not_hide_what_is_wrong() -> None:
    """Where they fail, operators are compared all the same."""
    auto = {0: torch.export.Dim.AUTO}
    program = torch.export.export(
        Many(), (torch.ones(4), torch.ones(5)), dynamic_shapes=(auto, auto)
    )
    few = torch.ones(2), torch.ones(3)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(*few)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _held(program, Many(), *few)
        with pytest.raises(ModelError, match=r"result 0 is off by 0\.29 of its size"):
            _held(program, Many(2.0), *few)
    assert float(program.state_dict["calls"]) == 0.0


class Failing(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        raise RuntimeError("as it is written")


class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x, x


class Longer(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return torch.cat([x, x])


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Failing, "it does not run: as it is written"),
        (Twice, "it gives 2 tensors, and what was traced 1"),
        (Longer, r"its result 0 is torch.float32 of \(6,\), and what was traced .* of \(3,\)"),
    ],
)
def test_what_is_not_compared_is_said(module: Any, why: str) -> None:
    program = _traced(Counted(), torch.ones(3))
    with pytest.warns(UserWarning, match=f"is not held against the module: {why}"):
        _held(program, module(), torch.ones(3))


def test_programs_that_do_not_run_are_said() -> None:
    def running(x: Any) -> Any:
        raise RuntimeError("no room")

    program = _traced(Counted(), torch.ones(3))
    with pytest.warns(UserWarning, match="what was traced does not run by itself: no room"):
        _held(program, Counted(), torch.ones(3), running=running)
