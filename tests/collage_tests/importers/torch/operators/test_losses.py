"""Losses and statistics inside of networks, and windows at given places, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import Function, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
functional = torch.nn.functional


def _held(function: Callable[..., Any], *inputs: Any) -> None:
    """On the example inputs, and on others that are drawn anew where they are no integers."""
    net = Function(function)
    mod = load_model(net, example_inputs=inputs).mod
    for _ in range(2):
        found = evaluate(mod, [x.numpy() for x in inputs])
        with torch.no_grad():
            wanted = net(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)
        inputs = tuple(torch.rand_like(x) if x.is_floating_point() else x.flip(0) for x in inputs)


def test_connectionist_temporal_classification() -> None:
    torch.manual_seed(1)

    def losses(x: Any, labels: Any, ends: Any, lengths: Any) -> Any:
        x = x.log_softmax(-1)
        each = functional.ctc_loss(x, labels, ends, lengths, reduction="none")
        known = functional.ctc_loss(x, labels, (7, 7, 7), (3, 3, 3), 4, "sum")
        one = functional.ctc_loss(x[:, 0], labels[0], (7,), (3,))
        mean = functional.ctc_loss(x, labels, ends, lengths, zero_infinity=True)
        return each, known, one, mean

    # The first one has too few steps for its labels, two of which are the same.
    labels = torch.tensor([[2, 2, 1], [3, 1, 2], [1, 2, 3]])
    _held(losses, rows(7, 3, 5), labels, torch.tensor([3, 5, 7]), torch.tensor([3, 2, 0]))


def test_labels_of_all_samples_in_one_row() -> None:
    torch.manual_seed(2)

    def loss(x: Any, labels: Any) -> Any:
        ends, lengths = torch.tensor([6, 6, 5]), torch.tensor([2, 0, 3])
        return functional.ctc_loss(x.log_softmax(-1), labels, ends, lengths, reduction="sum")

    _held(loss, rows(6, 3, 5), torch.tensor([2, 1, 3, 3, 1]))


@pytest.mark.parametrize("full", [False, True])
def test_gaussian_likelihood(full: bool) -> None:
    def losses(x: Any, y: Any, variance: Any) -> Any:
        each = functional.gaussian_nll_loss(x, y, variance, full, reduction="none")
        return each, torch.nn.GaussianNLLLoss()(x, y, variance[:, 0]), variance.sum()

    _held(losses, rows(3, 4), rows(3, 4), torch.rand(3, 4))


def test_margins_of_several_labels() -> None:
    """Labels end at the first -1, behind which others may stand."""
    labels = torch.tensor([[3, 0, -1, 1], [1, -1, 0, 0], [2, 1, 0, 3]])

    def losses(x: Any, y: Any) -> Any:
        return (
            functional.multilabel_margin_loss(x, y),
            functional.multilabel_margin_loss(x, y, reduction="none"),
            functional.multilabel_margin_loss(x[0], y[0], reduction="sum"),
        )

    _held(losses, rows(3, 4), labels)


@pytest.mark.parametrize(
    ("shape", "sizes"), [((2, 3, 9, 8), (5, 4)), ((3, 9, 8), (1, 4)), ((2, 3, 6, 7, 5), (4, 4, 2))]
)
def test_windows_at_places_that_were_drawn(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    pool = {
        2: functional.fractional_max_pool2d_with_indices,
        3: functional.fractional_max_pool3d_with_indices,
    }[len(sizes)]
    samples = shape[0] if len(shape) == len(sizes) + 2 else 1

    def pooled(x: Any, drawn: Any) -> Any:
        return pool(x, 2, output_size=sizes, _random_samples=drawn)

    _held(pooled, rows(*shape), torch.rand(samples, 3, len(sizes)))


def test_covariances_and_correlations() -> None:
    """PyTorch looks whether observations are enough, which nobody can who traces it."""
    counts, shares = torch.arange(1, 8), 0.1 * torch.arange(3, 10)

    def statistics(x: Any) -> Any:
        return (
            *(torch.cov(x), x.cov(correction=0), torch.cov(x[0]), torch.cov(x, fweights=counts)),
            torch.cov(x, correction=2, fweights=counts, aweights=shares),
            *(torch.cov(x, correction=0, aweights=shares), torch.corrcoef(x), x[0].corrcoef()),
        )

    _held(statistics, torch.rand(3, 7))
