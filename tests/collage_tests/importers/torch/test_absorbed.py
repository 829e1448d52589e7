"""Edges of graphs that data choose, whose sums are right however many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import program_of

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

NODES, EDGES = 6, 15


def _with_loops(edges: Any) -> tuple[Any, Any]:
    """Loops are dropped, and one for each node is added."""
    kept = edges[:, edges[0] != edges[1]]
    loops = torch.arange(NODES)
    source, to = torch.cat([kept, torch.stack([loops, loops])], 1)
    return source, to


def _summed(x: Any, edges: Any) -> Any:
    """As a graph convolution does, weighted by how many edges there are at both ends."""
    source, to = _with_loops(edges)
    weight = torch.ones(source.shape[0])
    degree = torch.zeros(NODES).scatter_add(0, to, weight)
    weight = degree.rsqrt()[source] * weight * degree.rsqrt()[to]
    messages = (x @ torch.linspace(-1, 1, 12).reshape(4, 3))[source] * weight.view(-1, 1)
    return torch.zeros(NODES, 3).index_add(0, to, messages)


def _attended(x: Any, edges: Any) -> Any:
    """Shares of each node's edges, by the largest of them, in two heads."""
    source, to = _with_loops(edges)
    heads = x.reshape(NODES, 2, 2)
    score = torch.nn.functional.leaky_relu((heads[source] * heads[to]).sum(-1))
    places = to.unsqueeze(1).expand_as(score)
    most = torch.zeros(NODES, 2).scatter_reduce(0, places, score, "amax", include_self=False)
    share = (score - most.index_select(0, to)).exp()
    share = share / torch.zeros(NODES, 2).scatter_add(0, places, share)[to]
    messages = (heads[source] * share.unsqueeze(-1)).flatten(1)
    return torch.zeros(NODES, 4).scatter_add(0, to.unsqueeze(1).expand_as(messages), messages)


def _twice(x: Any, edges: Any) -> Any:
    """Chosen again among what was chosen; written where there is one."""
    source, to = _with_loops(edges)
    later = source < to
    source, to = source[later], to[later]
    marked = torch.zeros(NODES).index_put((to,), torch.ones(to.shape[0]))
    return torch.zeros(NODES, 4).index_add(0, to, x[source]), marked


def _scaled(x: Any, edges: Any) -> Any:
    """By the largest and the sum of what lies along edges."""
    kept = edges[:, edges[0] != edges[1]]
    length = (x[kept[0]] - x[kept[1]]).square().sum(-1)
    share = length / length.max() + 1 / (1 + length.sum())
    return torch.zeros(NODES).index_add(0, kept[1], share)


def _all(x: Any, edges: Any) -> tuple[Any, ...]:
    return _summed(x, edges), _attended(x, edges), *_twice(x, edges), _scaled(x, edges)


def test_sums_are_right_however_many_edges_there_are() -> None:
    torch.manual_seed(3)
    edges = torch.randint(0, NODES, (2, EDGES))
    loaded = load_model(program_of(_all, torch.randn(NODES, 4), edges))
    assert not loaded.chosen
    none, all_but_one = edges.clone(), edges.clone()
    none[1] = (edges[0] + 1) % NODES
    all_but_one[1, 1:] = edges[0, 1:]
    all_but_one[1, 0] = (edges[0, 0] + 1) % NODES
    for given in (edges, none, all_but_one):
        x = torch.randn(NODES, 4)
        found = evaluate(loaded.mod, [x.numpy(), given.numpy()])
        for mine, theirs in zip(found, _all(x, given), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-5, atol=2e-5)


def _alone(x: Any, edges: Any) -> Any:
    kept = edges[:, edges[0] != edges[1]]
    return torch.zeros(NODES).index_add(0, kept[1], torch.ones(kept.shape[1])), x[kept[0]] * 2


def test_rows_that_are_given_are_cut_as_before() -> None:
    edges = torch.tensor([[0, 1, 2], [1, 1, 0]])
    loaded = load_model(program_of(_alone, torch.randn(NODES, 4), edges))
    assert len(loaded.chosen) == 1


def _experts(x: Any, weights: Any) -> Any:
    """Each row by the matrix that it chooses, written back where its mask holds."""
    found = torch.zeros_like(x)
    chosen = x.argmax(-1)
    for number in range(3):
        mine = chosen == number
        found[mine] = x[mine] @ weights[number]
    return found


def _put(x: Any, weights: Any) -> Any:
    """By masks over two axes, over every one, over one that is not the first, and added."""
    both = x.sum(-1) > 0
    first = x.clone()
    first[both] = x[both] @ weights[0]
    every = x.clone()
    every[x > 0] = x[x > 0].exp()
    columns = x.sum((0, 2)) > 0
    second = torch.zeros_like(x)
    second[:, columns] = x[:, columns] * weights[1, 0]
    rows = x.sum((1, 2)) > 0
    added = x.index_put((rows,), x[rows] * 2, accumulate=True)
    return first, every, second, added


@pytest.mark.parametrize(("function", "shape"), [(_experts, (7, 4)), (_put, (4, 5, 4))])
def test_rows_are_written_back_where_a_mask_holds(function: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    weights = torch.randn(3, 4, 4)
    loaded = load_model(program_of(function, torch.randn(*shape), weights))
    assert not loaded.chosen
    for shift in (0.0, 9.0, -9.0):
        x = torch.randn(*shape) + shift
        expected = function(x, weights)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = evaluate(loaded.mod, [x.numpy(), weights.numpy()])
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)


class Spline(torch.nn.Module):
    """Monotone pieces between two ends and the identity beyond them, as normalizing flows have it;
    in what piece elements beyond the ends lie is outside of the tables."""

    def forward(self, x: Any, widths: Any) -> Any:
        inside = (x >= -1) & (x <= 1)
        y, slopes = torch.zeros_like(x), torch.zeros_like(x)
        y[~inside] = x[~inside]
        slopes[~inside] = 1
        if torch.any(inside):
            y[inside], slopes[inside] = self._between(x[inside], widths[inside, :])
        return y, slopes

    def _between(self, x: Any, widths: Any) -> Any:
        if torch.min(x) < -1 or torch.max(x) > 1:
            raise ValueError
        ends = 2 * torch.nn.functional.pad(widths.softmax(-1).cumsum(-1), (1, 0)) - 1
        ends[..., 0], ends[..., -1] = -1.0, 1.0
        ends[..., -1] += 1e-6
        piece = (torch.sum(x[..., None] >= ends, -1) - 1)[..., None]
        begin = ends.gather(-1, piece)[..., 0]
        width = (ends[..., 1:] - ends[..., :-1]).gather(-1, piece)[..., 0]
        heights = torch.arange(1, widths.shape[-1] + 1).expand_as(widths) / 4.0
        slope = heights.gather(-1, piece)[..., 0]
        return begin + slope * (x - begin) / width, slope


def test_a_spline_is_computed_where_its_mask_holds() -> None:
    torch.manual_seed(3)
    x, widths = 2 * torch.randn(5, 4), torch.randn(5, 4, 6)
    with pytest.warns(UserWarning, match="what is checked at"):
        loaded = load_model(Spline(), example_inputs=(x, widths))
    assert not loaded.chosen
    # Of some, of none below and above, and of all.
    for given in (x, x * 0 - 3, x * 0 + 3, x.clamp(-1, 1)):
        found = evaluate(loaded.mod, [given.numpy(), widths.numpy()])
        for mine, theirs in zip(found, Spline()(given, widths), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-5)
