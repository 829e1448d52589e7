"""Functions as exported programs, and what is asked of them, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize

torch = pytest.importorskip("torch", exc_type=ImportError)


Cases = dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]
"""Functions by what they are, and how their inputs are drawn."""


class Function(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def program_of(function: Callable[..., Any], *inputs: Any) -> Any:
    return torch.export.export(Function(function).eval(), inputs, strict=False)


def imported(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """What the imported function gives, in numpy."""
    # Not before it is known whether PyTorch is here.
    from collage.importers.torch.nodes import as_array

    mod = normalize(load_model(program_of(function, *inputs)).mod)
    return evaluate(mod, [as_array(x) for x in inputs])


def rows(*shape: int) -> Any:
    return torch.randn(*shape)


def places(high: int, *shape: int) -> Any:
    return torch.randint(0, high, shape)


def require_agreement(function: Callable[..., Any], draw: Callable[[], tuple[Any, ...]]) -> None:
    """What is imported gives what PyTorch gives."""
    torch.manual_seed(7)
    inputs = draw()
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = imported(function, *inputs)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        theirs = theirs.numpy()
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
