"""Products, norms and solutions of exported programs, beside PyTorch on fresh random inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    imported,
    places,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional

CASES: Cases = {
    "bags": (
        lambda w, i: F.embedding_bag(i, w, mode="mean"),
        lambda: (rows(9, 4), places(9, 3, 5)),
    ),
    "bags of several lengths": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"),
        lambda: (rows(9, 4), places(9, 7), torch.tensor([0, 2, 2])),
    ),
    **{
        f"bags by {mode}, one row left out: {left_out}": (
            lambda w, i, o, mode=mode, left_out=left_out: F.embedding_bag(
                i, w, o, mode=mode, padding_idx=3 if left_out else None
            ),
            lambda: (rows(5, 4), places(5, 9), torch.tensor([0, 2, 2, 7])),
        )
        for mode in ("sum", "mean", "max")
        for left_out in (False, True)
    },
    "bags of one length by maxima": (
        lambda w, i: F.embedding_bag(i, w, mode="max"),
        lambda: (rows(9, 4), places(9, 3, 5)),
    ),
    "weighed bags": (
        lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        lambda: (rows(9, 4), places(9, 3, 5), rows(3, 5)),
    ),
    "distances": (lambda x, y: torch.cdist(x, y), lambda: (rows(2, 4, 3), rows(2, 5, 3))),
    "distances of other orders": (
        lambda x, y: tuple(torch.cdist(x, y, p) for p in (1.0, 3.0, math.inf)),
        lambda: (rows(2, 4, 3), rows(2, 5, 3)),
    ),
    "norms": (
        lambda x: tuple(
            torch.linalg.vector_norm(x, order, axes, keepdim=axes == 1)
            for order in (2, 1, 0, 3.5, -1, math.inf, -math.inf)
            for axes in (None, 1, (0, -1))
        ),
        lambda: (rows(3, 4, 5),),
    ),
    "bilinear forms": (
        lambda x, y, w, b: F.bilinear(x, y, w, b),
        lambda: (rows(4, 5), rows(4, 3), rows(2, 5, 3), rows(2)),
    ),
    "Cholesky factors": (
        lambda x: torch.linalg.cholesky(x @ x.mT + 3 * torch.eye(4)),
        lambda: (rows(2, 5, 4, 4).clamp(-1, 1),),
    ),
    "inverses": (
        lambda x: torch.linalg.inv(x.roll(1, -1) + 5 * torch.eye(4).roll(1, 0)),
        lambda: (rows(2, 5, 4, 4).clamp(-1, 1),),
    ),
    "inverse of one": (
        lambda x: torch.inverse(x + 5 * torch.eye(3)),
        lambda: (rows(3, 3).clamp(-1, 1),),
    ),
    "systems": (
        lambda x, b: torch.linalg.solve(x.flip(-1) + 6 * torch.eye(5).flip(0), b),
        lambda: (rows(2, 5, 5).clamp(-1, 1), rows(2, 5, 3)),
    ),
    "determinants": (
        lambda x: torch.linalg.det(torch.cat([x, torch.zeros_like(x[:1])])),
        lambda: (rows(6, 4, 4).clamp(-1, 1),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_norms_in_half_precision_are_computed_in_single(scale: float) -> None:
    """The squares of small numbers would vanish, those of large ones overflow."""
    x = (rows(8, 40) * scale).half()
    (found,) = imported(lambda x: torch.linalg.vector_norm(x, dim=1), x)
    wanted = torch.linalg.vector_norm(x.double(), dim=1).numpy()
    np.testing.assert_allclose(found.astype("float64"), wanted, rtol=2**-10)


def test_normalized_weights_are_folded_as_exactly_as_in_torch() -> None:
    """The norms of small weights were off by half a percent, since their squares nearly vanish."""
    conv = torch.nn.Conv1d(16, 16, 33)
    torch.nn.init.normal_(conv.weight, std=1e-3)
    module = torch.nn.utils.parametrizations.weight_norm(conv).half().eval()
    x = rows(1, 16, 50).half()
    mod = normalize(load_model(torch.export.export(module, (x,), strict=False)).mod)
    (found,) = evaluate(mod, [x.numpy()])
    with torch.no_grad():
        eager = module(x).double()
        wanted = module.double()(x.double())
    error, bound = (np.sqrt(np.mean((y - wanted.numpy()) ** 2)) for y in (found, eager.numpy()))
    assert error <= 2 * bound
