"""Rows that data choose, written into by masks and places within them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def _by_masks(rows: Any) -> Any:
    """One value, one for each column, by rows, by elements and by columns."""
    first, second = rows.clone(), rows.clone()
    first[first > 1] = 1.0
    first[first[:, 0] > 0] = torch.arange(4.0)
    second[:, torch.tensor([True, False, True, False])] = 2.0
    second = second.index_put((rows[:, 1] > 0,), torch.ones(4), accumulate=True)
    second[torch.where(second > 3)] = 0.5
    return first + second


def _among_themselves(rows: Any) -> Any:
    """What is chosen among rows again is written back into them."""
    first, second = rows.clone(), rows.clone()
    mine = rows[:, 0] > 0
    first[mine] = rows[mine].exp()
    second[rows > 0] = rows[rows > 0].sqrt()
    second[second < 0] += 1.0
    return first + second


def _by_places(rows: Any) -> Any:
    """At the same places of each row, and at each row's own."""
    first, second = rows.clone(), rows.clone()
    first[:, [0, 2]] = first[:, [1, 3]]
    first[torch.arange(rows.shape[0]), (rows[:, 0] > 0).long()] = rows[:, 1] * 2
    second = second.scatter(1, (rows[:, :1] > 0).long(), 5.0)
    second = second.scatter_add(1, (rows > 0).long(), rows)
    return first + second.index_add(1, torch.tensor([1, 1]), rows[:, 2:])


@pytest.mark.parametrize("change", [_by_masks, _among_themselves, _by_places])
def test_rows_are_written_into(change: Any) -> None:
    def function(x: Any) -> Any:
        mine = x.sum(-1) > 0
        found = torch.zeros_like(x)
        found[mine] = change(x[mine])
        return found

    torch.manual_seed(3)
    x = torch.randn(6, 4)
    loaded = load_model(program_of(function, x))
    assert not loaded.chosen
    for given in (x, x - 9, x + 9, torch.randn(6, 4)):
        (found,) = evaluate(loaded.mod, [given.numpy()])
        np.testing.assert_allclose(found, function(given).numpy(), rtol=1e-5, atol=1e-5)


class LinearSpline(torch.nn.Module):
    """Straight pieces between two ends, as normalizing flows have them: the last one is given what
    lies at its end by a mask."""

    def forward(self, x: Any, shares: Any) -> Any:
        inside = x.abs() <= 1
        y, slopes = torch.zeros_like(x), torch.zeros_like(x)
        y[~inside] = x[~inside]
        if inside.any():
            y[inside], slopes[inside] = self._between(x[inside], shares[inside, :])
        return y, slopes

    def _between(self, x: Any, shares: Any) -> Any:
        count = shares.shape[-1]
        heights = shares.softmax(-1)
        ends = heights.cumsum(-1)
        ends[..., -1] = 1.0
        ends = torch.nn.functional.pad(ends, (1, 0))
        at = (x + 1) / 2 * count
        piece = at.floor().long()
        piece[piece >= count] = count - 1
        mine = heights.gather(-1, piece.unsqueeze(-1)).squeeze(-1)
        y = ends.gather(-1, piece.unsqueeze(-1)).squeeze(-1)
        y += (at - piece) * mine
        return y.clamp(0, 1) * 2 - 1, mine.log() + math.log(count)


def test_a_linear_spline_is_computed_where_its_mask_holds() -> None:
    torch.manual_seed(3)
    x, shares = 2 * torch.randn(5, 4), torch.randn(5, 4, 6)
    loaded = load_model(LinearSpline(), example_inputs=(x, shares))
    assert not loaded.chosen
    # Of some, of none below and above, of all, and at the ends.
    for given in (x, x * 0 - 3, x * 0 + 3, x.clamp(-1, 1), x.sign()):
        found = evaluate(loaded.mod, [given.numpy(), shares.numpy()])
        for mine, theirs in zip(found, LinearSpline()(given, shares), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)


class InverseLinearSpline(torch.nn.Module):
    """Which piece a value lies in is searched for in its own row; one mask chooses both."""

    def forward(self, y: Any, shares: Any) -> Any:
        inside = y.abs() <= 1
        x = torch.zeros_like(y)
        x[~inside] = y[~inside]
        x[inside] = self._between(y[inside], shares[inside, :])
        return x

    def _between(self, y: Any, shares: Any) -> Any:
        count = shares.shape[-1]
        ends = torch.nn.functional.pad(shares.softmax(-1).cumsum(-1), (1, 0))
        at = (y + 1) / 2
        piece = torch.searchsorted(ends[..., 1:].contiguous(), at.unsqueeze(-1))
        piece = piece.clamp(max=count - 1)
        below, above = (ends.gather(-1, piece + n).squeeze(-1) for n in (0, 1))
        start = torch.linspace(0, 1, count + 1)[piece.squeeze(-1)]
        found = (start + (at - below) / (above - below) / count) * 2 - 1
        return found + torch.bucketize(at, torch.linspace(0, 1, 4))


def test_an_inverse_linear_spline_is_computed_where_its_mask_holds() -> None:
    torch.manual_seed(3)
    y, shares = 2 * torch.randn(5, 4), torch.randn(5, 4, 6)
    loaded = load_model(InverseLinearSpline(), example_inputs=(y, shares))
    assert not loaded.chosen
    for given in (y, y * 0 - 3, y * 0 + 3, y.clamp(-1, 1)):
        (found,) = evaluate(loaded.mod, [given.numpy(), shares.numpy()])
        expected = InverseLinearSpline()(given, shares).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _looked_up(ids: Any, table: Any) -> Any:
    """Numbers that mark what is none lie outside of tables, and stand behind those that are meant
    where these are fewer than there may be."""
    mine = ids[(ids >= -5) & (ids < 5)]
    kept = ids[(ids >= 0) & (ids < 5)]
    found = torch.nn.functional.embedding(kept, table) * table[kept]
    found = found + table.index_select(0, kept) + table[:, 1:3][kept, kept % 2].unsqueeze(1)
    wide = table.T.unsqueeze(0).expand(kept.shape[0], 4, 5)
    found = found + wide.gather(2, kept.view(-1, 1, 1).expand(-1, 4, 1)).squeeze(2)
    ones = torch.zeros(kept.shape[0], 5).scatter(1, kept.unsqueeze(1), 1.0)
    written = torch.zeros(5).index_put((mine,), torch.ones(mine.shape[0]))
    return found.sum(0), ones.sum(0), table[mine].square().sum(0), written


def test_rows_that_are_none_look_up_nothing_outside_of_tables() -> None:
    torch.manual_seed(3)
    table = torch.randn(5, 4)
    ids = torch.tensor([10**6, 0, 4, 10**6, 2])
    loaded = load_model(program_of(_looked_up, ids, table))
    assert not loaded.chosen
    for given in (ids, torch.tensor([-(10**6), 3, -1, 99, -5]), torch.tensor([7, -5, 1, 1, 7])):
        found = evaluate(loaded.mod, [given.numpy(), table.numpy()])
        for mine, theirs in zip(found, _looked_up(given, table), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)
