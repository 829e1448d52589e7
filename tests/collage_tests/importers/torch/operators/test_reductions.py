"""Extremes, sums, sorted and scattered values of exported programs, beside PyTorch."""

from __future__ import annotations

import math

import pytest

from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    places,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional

CASES: Cases = {
    "amax": (lambda x: x.amax((1, 2)), lambda: (rows(3, 4, 5),)),
    "amin, dimensions kept": (lambda x: x.amin(-1, keepdim=True), lambda: (rows(3, 4),)),
    "min and its place": (lambda x: tuple(x.min(1)), lambda: (rows(3, 9),)),
    "max and its place": (lambda x: tuple(x.max(-1)), lambda: (rows(3, 9),)),
    "any": (lambda x: (x > 2).any(), lambda: (rows(3, 4),)),
    "any along an axis": (lambda x: (x > 0).any(1), lambda: (rows(8, 2),)),
    "product along an axis": (lambda x: x.prod(1), lambda: (rows(3, 4),)),
    **{
        f"{'largest' if largest else 'smallest'} in any order": (
            lambda x, largest=largest: x.topk(3, 1, largest, sorted=False)[0].sort(1)[0],
            lambda: (rows(4, 9),),
        )
        for largest in (True, False)
    },
    "truth values added": (lambda x: (x > 0).sum(1), lambda: (rows(3, 7),)),
    "truth values added up": (lambda x: (x > 0).cumsum(1), lambda: (rows(3, 7),)),
    "mean of whole numbers": (lambda i: i.float().mean() + i.sum(), lambda: (places(9, 4),)),
    **{
        f"scattered {reduce}, what was there left out: {not own}": (
            lambda x, i, y, reduce=reduce, own=own: (
                x.scatter_reduce(0, i, y, reduce, include_self=own),
                (x * 9).int().scatter_reduce(0, i, (y * 9).int(), reduce, include_self=own),
            ),
            lambda: (rows(6, 4), places(5, 9, 4), rows(9, 4)),
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    "repeated as often as told": (
        lambda x, n: x.repeat_interleave(n, 1, output_size=6),
        lambda: (rows(2, 4, 3), torch.tensor([2, 0, 3, 1])),
    ),
    "the third smallest": (
        lambda x: tuple(x.kthvalue(3, 1, keepdim=True)) + tuple(x.kthvalue(2, 0)),
        lambda: (rows(4, 7),),
    ),
    "running maxima and their places": (
        lambda x: tuple(torch.cummax((x * 2).round(), 1)),
        lambda: (rows(3, 13, 2),),
    ),
    "running minima of whole numbers": (
        lambda i: tuple(torch.cummin(i, -1)),
        lambda: (places(9, 4, 8),),
    ),
    "running sum of exponentials": (
        lambda x: torch.logcumsumexp(torch.where(x > 0, x * 50, -math.inf), 1),
        lambda: (rows(3, 9),),
    ),
    "places in sorted rows": (
        lambda a, x: (torch.searchsorted(a, x), torch.searchsorted(a, x, right=True)),
        lambda: (places(5, 3, 9).sort(-1)[0], places(6, 3, 7)),
    ),
    "places in one sorted row": (
        lambda a, x: torch.searchsorted(a, x, out_int32=True),
        lambda: (rows(9).sort(-1)[0], rows(2, 3, 4)),
    ),
    "buckets of values, of one number, and of what is no number": (
        lambda a, x: (
            torch.bucketize(x, a),
            torch.bucketize(x, a, right=True, out_int32=True),
            torch.bucketize(x[0, 0], a),
            torch.bucketize(torch.where(x > 0, x, math.nan), a),
        ),
        lambda: (rows(9).sort(-1)[0], rows(2, 3)),
    ),
    "variance and mean": (lambda x: torch.var_mean(x, 1), lambda: (rows(3, 9),)),
    "deviation and mean": (
        lambda x: torch.std_mean(x, (0, 2), correction=0, keepdim=True),
        lambda: (rows(3, 4, 5),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operator_agrees_with_torch(case: str) -> None:
    require_agreement(*CASES[case])
