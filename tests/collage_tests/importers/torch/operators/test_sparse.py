"""Sparse tensors and their products, and elements by bins and segments, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from collage.backends.contract.errors import ModelError
from collage.importers import load_model
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    places,
    program_of,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def _edges() -> Any:
    """Some of them twice."""
    ends = torch.stack([places(5, 9), places(6, 9)])
    ends[:, 1] = ends[:, 0]
    return ends


def _made(ends: Any, values: Any) -> Any:
    return torch.sparse_coo_tensor(ends, values, (5, 6))


def _mostly_zero(*shape: int) -> Any:
    return torch.relu(rows(*shape))


CASES: Cases = {
    "product of edges": (
        lambda e, v, x: torch.sparse.mm(_made(e, v), x),
        lambda: (_edges(), rows(9), rows(6, 3)),
    ),
    "coalesced, exchanged": (
        lambda e, v, x: _made(e, v).coalesce().t() @ x,
        lambda: (_edges(), rows(9), rows(5, 3)),
    ),
    "product with a vector": (
        lambda e, v, x: torch.mv(_made(e, v), x),
        lambda: (_edges(), rows(9), rows(6)),
    ),
    "scaled, added, made dense": (
        lambda e, v, x: (_made(e, v) * 2.0).to_dense() + x,
        lambda: (_edges(), rows(9), rows(5, 6)),
    ),
    "sums": (
        lambda e, v: torch.sparse.sum(_made(e, v), 1).to_dense(),
        lambda: (_edges(), rows(9)),
    ),
    "added to a product": (
        lambda b, a, x: torch.sparse.addmm(b, a.to_sparse(), x, beta=0.5, alpha=2.0),
        lambda: (rows(5, 3), _mostly_zero(5, 6), rows(6, 3)),
    ),
    "in rows": (
        lambda a, x: a.to_sparse_csr() @ x,
        lambda: (_mostly_zero(5, 6), rows(6, 3)),
    ),
    "counts": (
        lambda i: torch.bincount(i, minlength=12),
        lambda: (places(10, 30),),
    ),
    "weights of bins, and what shares their number": (
        lambda i, w, x: x / torch.bincount(i.flatten(), w, minlength=12).clamp(min=1),
        lambda: (places(12, 30).int(), rows(30), rows(2, 12)),
    ),
    **{
        f"segments: {how}, from {start}": (
            lambda x, n, how=how, start=start: torch.segment_reduce(
                x, how, lengths=n, unsafe=True, initial=start
            ),
            lambda: (rows(7, 3), torch.tensor([2, 0, 5])),
        )
        for how in ("sum", "mean", "max", "min", "prod")
        for start in (None, 0.5)
    },
    "segments by their borders": (
        lambda x, n: torch.segment_reduce(x, "max", offsets=n, unsafe=True),
        lambda: (rows(7, 3), torch.tensor([0, 2, 3, 7])),
    ),
    "segments of each row": (
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=1, unsafe=True),
        lambda: (rows(2, 5, 3), torch.tensor([[2, 3], [4, 1]])),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_pytorch(case: str) -> None:
    require_agreement(*CASES[case])


def test_sparse_tensors_asked_for_what_they_hold_are_refused() -> None:
    program = program_of(lambda a: torch.sparse.softmax(a.to_sparse(), 1), rows(3, 4))
    with pytest.raises(ModelError, match=r"make them dense before \(to_dense\(\)\)"):
        load_model(program)


def test_bins_without_a_number_are_refused() -> None:
    with pytest.raises(ModelError, match="largest value; give minlength"):
        load_model(program_of(torch.bincount, places(5, 9)))
