"""Exported programs that choose rows, and what follows them, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.normalize import normalize
from collage.pipeline.shapes.rows import rows_of
from tests.collage_tests.importers.onnx.onnx_models import cut_rows
from tests.collage_tests.importers.torch.torch_functions import places, program_of, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytree = torch.utils._pytree


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "a mask": (lambda x: x[x > 0] * 2, lambda: (rows(3, 4),)),
    "nothing": (lambda x: x[x > 99], lambda: (rows(3, 4),)),
    "everything": (lambda x: x[x > -99], lambda: (rows(3, 4),)),
    "rows": (lambda x, w: torch.relu(x[x.sum(1) > 0] @ w), lambda: (rows(30, 4), rows(4, 3))),
    "columns": (lambda x: x[:, x.sum(0) > 0] + 1, lambda: (rows(3, 40),)),
    "both": (lambda x: x[x.sum(1) > 0][:, x.sum(0) > 0], lambda: (rows(5, 6),)),
    "places": (lambda x: torch.nonzero(x), lambda: (places(2, 3, 4, 5),)),
    "places by axis": (lambda x: torch.where(x > 0), lambda: (rows(3, 4),)),
    "places in rows": (lambda x: torch.argwhere(x > 0), lambda: (rows(3, 4),)),
    "a mask that is spread": (
        lambda x, m: torch.masked_select(x, m > 0),
        lambda: (rows(3, 4), rows(3, 1)),
    ),
    "looked up": (
        lambda x, t: t[torch.nonzero(x > 0).squeeze(1)],
        lambda: (rows(9), rows(9, 3)),
    ),
    "two, and another result": (
        lambda x, y: {"a": x[x.sum(1) > 0].softmax(-1), "b": (y[y > 0], x + 1)},
        lambda: (rows(20, 4), rows(7)),
    ),
    "in parts": (lambda x: x[x[:, 0] > 0].reshape(-1, 2, 2), lambda: (rows(30, 4),)),
    "distinct": (lambda x: torch.unique(x), lambda: (places(5, 4, 5),)),
    "distinct, and where, and how many": (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda: (places(5, 4, 5).float(),),
    ),
    **{
        f"runs of equal values, {shape}": (
            lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            lambda shape=shape: (places(2, *shape),),
        )
        for shape in ((30,), (4, 5), (1,))
    },
    "distinct rows": (
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        lambda: (places(2, 20, 3),),
    ),
    "distinct columns": (lambda x: torch.unique(x, dim=1), lambda: (places(2, 3, 20).float(),)),
    "runs of equal rows": (
        lambda x: torch.unique_consecutive(x, return_counts=True, dim=0),
        lambda: (places(2, 30, 2),),
    ),
    "a mean, the largest and the place of the last": (
        lambda x: (x[x > 0].mean(), x[x > 0].max(), torch.where(x.flatten() > 0)[0].max()),
        lambda: (rows(3, 4),),
    ),
    "sorted, and from where": (
        lambda x: x[x > 0].sort(descending=True),
        lambda: (rows(3, 4),),
    ),
    "chosen again, by rows and by elements": (
        lambda x: (lambda some: (some[some[:, 0] > 0], some[some > 0.3]))(x[x.sum(1) > 0]),
        lambda: (rows(9, 4),),
    ),
    "numbered": (
        lambda x: (lambda some: (some * torch.arange(some.shape[0])).sum())(x[x > 0]),
        lambda: (rows(3, 4),),
    ),
    "shares, and sums up to each": (
        lambda x: (x[x > 0].softmax(0), x[x > 0].cumsum(0)),
        lambda: (rows(3, 4),),
    ),
    "joined, and the first of these": (
        lambda x: torch.cat([x[x > 0], x[x < 0]])[:5],
        lambda: (rows(3, 4),),
    ),
    "products over rows, and their elements": (
        lambda x: (lambda some: (some.T @ some, some.reshape(-1)))(x[x.sum(1) > 0]),
        lambda: (rows(9, 4),),
    ),
    "distinct of one": (lambda x: torch.unique(x), lambda: (rows(1),)),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_pytorch(name: str) -> None:
    function, drawn = CASES[name]
    inputs = drawn()
    loaded = load_model(program_of(function, *inputs))
    whole = evaluate(normalize(loaded.mod), [x.numpy() for x in inputs])
    found = cut_rows(rows_of(loaded), whole)
    wanted = [x.numpy() for x in pytree.tree_leaves(function(*inputs))]
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: (lambda chosen: chosen.sum() / chosen.shape[0])(x[x > 0]),
        lambda x: x[x > 0].var(),
        lambda x: torch.ones(x[x > 0].shape[0]).sum() + x[x > 0].flip(0),
        lambda x: (lambda chosen: chosen * chosen.shape[0])(x[x > 0]),
        lambda x: x * x[x > 0].shape[0],
        lambda x: (x[x > 0], x * (x[x > 0] * 2).shape[0]),
        # One for any number of rows, but for none.
        lambda x: (lambda first: first.sum() + first.shape[0])(x[x > 0][:1]),
        lambda x: (lambda first: first * 2 + first.shape[0])(x[x > 0][:2]),
    ],
)
def test_what_mixes_rows_or_computes_with_their_number_is_refused(
    mixing: Callable[..., Any],
) -> None:
    with pytest.raises(ModelError, match=r"the data say|data choose|depends on data"):
        rows_of(load_model(program_of(mixing, rows(3, 4))))


class _Detector(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Boxes with a score above a limit, their scores, and everything as it was."""

    def forward(self, boxes: Any, scores: Any) -> Any:
        sure = scores > 0.5
        return {"boxes": boxes[sure] * 2, "scores": scores[sure]}, scores


def test_a_bundle_gives_the_rows_that_there_are(tmp_path: Path) -> None:
    examples = (torch.rand(50, 4), torch.rand(50))
    result = collage.optimize(
        _Detector(), ["llvm"], strategy="single:tvm", example_inputs=examples, time_budget_sec=0
    )
    bundle = collage.load(result.export(tmp_path / "detector"))
    for share in (0.0, 0.4, 1.0):
        boxes, scores = torch.rand(50, 4), (torch.rand(50) < share) * 0.4 + 0.3
        found, all_scores = bundle(boxes, scores)
        wanted, _ = _Detector()(boxes, scores)
        assert found.keys() == wanted.keys()
        for name, one in found.items():
            assert one.shape == wanted[name].shape
            assert torch.equal(one, wanted[name])
        assert torch.equal(all_scores, scores)


def test_rows_that_are_regrouped_are_refused_with_the_reason() -> None:
    program = program_of(lambda x, mask: x[mask].view(-1, 2), rows(6, 4), rows(6, 4) > 0)
    with pytest.raises(ModelError, match="does not take another number of them"):
        load_model(program)
