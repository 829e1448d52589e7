"""Rows that data choose, of which what follows asks for so many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

GRAPHS, MOST, WIDTH = 2, 4, 3


def _attended(x: Any, graph: Any) -> Any:
    """Nodes of graphs as a padded batch, each among those of its own graph, and back."""
    counts = torch.zeros(GRAPHS, dtype=torch.long).index_add(0, graph, torch.ones_like(graph))
    first = counts.cumsum(0) - counts
    place = torch.arange(len(graph)) - first[graph] + graph * MOST
    dense = torch.zeros(GRAPHS * MOST, WIDTH).index_put((place,), x)
    there = torch.zeros(GRAPHS * MOST, dtype=torch.bool)
    there = there.index_put((place,), torch.ones_like(graph, dtype=torch.bool))
    dense, there = dense.view(GRAPHS, MOST, WIDTH), there.view(GRAPHS, MOST)
    scores = (dense @ dense.mT).masked_fill(~there.unsqueeze(1), -torch.inf)
    return x + (scores.softmax(-1) @ dense)[there]


def _viewed(x: Any, graph: Any) -> Any:
    """So many of each row, beside others of which nobody asks how many there are."""
    best = torch.zeros_like(x, dtype=torch.bool).scatter(1, x.topk(2).indices, True)
    places = torch.where(best)
    return x[best].view(len(x), 2) * (graph + 1).unsqueeze(1), x[places].view(7, 2), x[x > 0].sum()


@pytest.mark.parametrize("function", [_attended, _viewed])
def test_there_are_as_many_rows_as_are_asked_for(function: Any) -> None:
    torch.manual_seed(3)
    x, graph = torch.randn(7, WIDTH), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    with pytest.warns(UserWarning, match="for as many rows as what follows asks for"):
        loaded = load_model(program_of(function, x, graph))
    assert not loaded.chosen
    for given in (graph, torch.tensor([0, 0, 0, 0, 1, 1, 1])):
        x = torch.randn(7, WIDTH)
        expected = function(x, given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = evaluate(loaded.mod, [x.numpy(), given.numpy()])
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)
