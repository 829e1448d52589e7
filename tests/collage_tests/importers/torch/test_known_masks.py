"""Reads and writes through masks that depend on no input."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of, require_agreement, rows

torch = pytest.importorskip("torch", exc_type=ImportError)

pytestmark = pytest.mark.torch

_CHOSEN = torch.tensor([True, False, True, False])


def _one_axis(x: Any) -> Any:
    x = x.clone()
    x[:, _CHOSEN] = x[:, 1:3]
    return x


def _spread(x: Any) -> Any:
    """One column for all that are chosen, which is not one number."""
    x = x.clone()
    x[:, ~_CHOSEN] = x[:, :1]
    return x


def _several_axes(x: Any) -> Any:
    x = x.clone()
    x[torch.tril(torch.ones(3, 4)) > 0] = torch.arange(6.0)
    return x


def _behind_a_slice(x: Any) -> Any:
    x = x.clone()
    x[1:, _CHOSEN] = x[:2, 1:3] * 2
    return x


def _added(x: Any) -> Any:
    return x.index_put((torch.arange(3) > 0,), x[:2], accumulate=True)


def _none(x: Any) -> Any:
    x = x.clone()
    x[:, torch.arange(4) > 7] = torch.ones(3, 0)
    return x


def _written_in_code(x: Any) -> Any:
    x, mask = x.clone(), torch.tensor([True, False, True, True])
    x[:, mask] = x[:, :1]
    return x


def _regrouped(x: Any) -> Any:
    """More rows than are chosen, or fewer, cannot be."""
    return x[torch.tril(torch.ones(3, 4)) > 0].view(-1, 2)


def _into_a_product(x: Any) -> Any:
    return x[:, _CHOSEN] @ torch.ones(2, 5), x.masked_select(_CHOSEN).sum(), _CHOSEN.sum() + x


def _read_and_written(x: Any) -> Any:
    """As many as are read."""
    x, left = x.clone(), torch.tensor([False, True, False, True])
    x[:, left] = x[:, _CHOSEN] * 2
    return x


def _chosen_among_the_chosen(x: Any) -> Any:
    return x[:, _CHOSEN][:, torch.tensor([False, True])].reshape(3)


@pytest.mark.parametrize(
    "function",
    [_written_in_code, _regrouped, _into_a_product, _read_and_written, _chosen_among_the_chosen],
)
def test_what_they_choose_has_as_many_rows_as_they_hold(function: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        # That rows are as many as what follows asks for is nothing to warn of.
        warnings.filterwarnings("error", ".*asks for")
        require_agreement(function, lambda: (rows(3, 4),))


@pytest.mark.parametrize(
    "function", [_one_axis, _spread, _several_axes, _behind_a_slice, _added, _none]
)
def test_their_places_are_written_down(function: Callable[[Any], Any]) -> None:
    require_agreement(function, lambda: (rows(3, 4),))


class Kept(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A mask among its buffers, written into or not."""

    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.changes = changes
        self.register_buffer("mask", torch.tensor([True, False, True, False]))

    def forward(self, x: Any) -> Any:
        x, mask = x.clone(), self.mask.clone()
        if self.changes:
            mask[0] = x.sum() > 0
        x[:, mask] = x[:, 1:3]
        return x


def test_masks_among_buffers() -> None:
    require_agreement(Kept(changes=False), lambda: (rows(3, 4),))


def test_masks_that_inputs_change_are_not_known() -> None:
    """As many places as are written, which may be others in each call."""
    program = torch.export.export(Kept(changes=True), (rows(3, 4),))
    with pytest.warns(UserWarning, match="where a mask holds"):
        mod = load_model(program).mod
    x = rows(3, 4).abs()
    (found,) = evaluate(mod, [x.numpy()])
    np.testing.assert_array_equal(found, Kept(changes=True)(x).numpy())


def test_the_program_that_is_given_is_not_changed() -> None:
    # Not before it is known whether PyTorch is here.
    from collage.importers.torch.known_masks import with_known_masks

    program = program_of(_one_axis, rows(3, 4))
    before, constants = str(program.graph), set(program.constants)
    assert str(with_known_masks(program).graph) != before
    assert (str(program.graph), set(program.constants)) == (before, constants)
