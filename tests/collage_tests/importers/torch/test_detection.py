"""Heads of detectors and mixtures of experts, which go on with as many rows as data say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.backends.contract.errors import ModelError
from collage.cost.reference import evaluate
from collage.importers import load_model
from collage.pipeline.shapes.rows import rows_of
from tests.collage_tests.importers.onnx.onnx_models import cut_rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
functional = torch.nn.functional

SIDE = 100.0


def _nms() -> Any:
    """torchvision's operator, or one that is called like it."""
    if not hasattr(torch.ops.torchvision, "nms"):
        torch.library.define("torchvision::nms", "(Tensor b, Tensor s, float overlap) -> Tensor")
        torch.library.register_fake("torchvision::nms", _unknown_number)
        torch.library.impl("torchvision::nms", "cpu", _suppressed)
    return torch.ops.torchvision.nms


def _unknown_number(boxes: Any, _scores: Any, _overlap: float) -> Any:
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty((count,), dtype=torch.int64)


def _suppressed(boxes: Any, scores: Any, overlap: float) -> Any:
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in scores.argsort(descending=True, stable=True).tolist():
        low = torch.maximum(boxes[i, :2], boxes[kept, :2])
        high = torch.minimum(boxes[i, 2:], boxes[kept, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        if not bool((shared / (areas[i] + areas[kept] - shared) > overlap).any()):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _by_class(boxes: Any, scores: Any, labels: Any, overlap: float) -> Any:
    """As torchvision has it: classes far from each other."""
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64)
    away = labels.to(boxes) * (boxes.max() + torch.tensor(1).to(boxes))
    return _nms()(boxes + away[:, None], scores, overlap)


def _decoded(moves: Any, anchors: Any) -> Any:
    sizes = anchors[:, 2:] - anchors[:, :2]
    middles = anchors[:, :2] + 0.5 * sizes
    x, y = (moves[:, i::4] * sizes[:, i, None] + middles[:, i, None] for i in range(2))
    w, h = (moves[:, 2 + i :: 4].clamp(max=4).exp() * sizes[:, i, None] / 2 for i in range(2))
    return torch.stack((x - w, y - h, x + w, y + h), 2).flatten(1).clamp(0, SIDE)


def _level(logits: Any, moves: Any, anchors: Any) -> tuple[Any, ...]:
    scores = torch.sigmoid(logits).flatten()
    kept = scores > 0.5
    scores, places = scores[kept], torch.where(kept)[0]
    scores, best = scores.topk(min(10, places.size(0)))
    places = places[best]
    which = torch.div(places, logits.shape[1], rounding_mode="floor")
    return _decoded(moves[which], anchors[which]), scores, places % logits.shape[1]


class _OneStage(torch.nn.Module):  # type: ignore[misc,name-defined]
    """RetinaNet's and FCOS's: the best of each level, joined, and the best of these."""

    def forward(self, one: Any, other: Any) -> Any:
        found = [_level(*level) for level in (one, other)]
        boxes, scores, labels = (torch.cat(each) for each in zip(*found, strict=True))
        kept = _by_class(boxes, scores, labels, 0.5)[:8]
        return {"boxes": boxes[kept], "scores": scores[kept], "labels": labels[kept]}


class _TwoStages(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Faster R-CNN's: proposals, what pictures of two sizes show there, and boxes by classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.scores = torch.nn.Linear(12, 3)
        self.moves = torch.nn.Linear(12, 12)

    def forward(self, logits: Any, anchors: Any, large: Any, small: Any) -> Any:
        boxes = anchors[torch.where(logits > 0)[0]]
        sizes = (boxes[:, 2:] - boxes[:, :2]).prod(1).sqrt()
        shown = torch.zeros((len(boxes), 3, 2, 2))
        for number, picture in enumerate((large, small)):
            mine = torch.where((sizes > 15).long() == number)[0]
            at = (boxes[mine] / SIDE * (picture.shape[-1] - 1)).round().long()
            rows, columns = at[:, [1, 3], None], at[:, None, [0, 2]]
            shown[mine] = picture[:, rows, columns].permute(1, 0, 2, 3)
        shown = shown.flatten(1)
        scores = self.scores(shown).softmax(-1)
        labels = torch.arange(3).view(1, -1).expand_as(scores)[:, 1:].reshape(-1)
        found = _decoded(self.moves(shown), boxes).reshape(len(boxes), -1, 4)[:, 1:].reshape(-1, 4)
        scores = scores[:, 1:].reshape(-1)
        kept = torch.where(scores > 0.3)[0]
        found, scores, labels = found[kept], scores[kept], labels[kept]
        kept = _by_class(found, scores, labels, 0.5)[:6]
        return found[kept], scores[kept], labels[kept]


class _Experts(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Only those experts run that somebody chose, as many models of transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.gate = torch.nn.Linear(4, 5)
        self.experts = torch.nn.ModuleDict({f"no_{i}": torch.nn.Linear(4, 4) for i in range(5)})

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mask = functional.one_hot(chosen, 5).permute(2, 1, 0)
        summed = torch.zeros_like(x)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            which, row = torch.where(mask[expert].squeeze(0))
            given = x[None, row].reshape(-1, x.shape[-1])
            given = self.experts[f"no_{expert[0]}"](given) * weights[row, which, None]
            summed.index_add_(0, row, given)
        return summed


class _StackedExperts(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Of one tensor for all, and with a place in the mask that stands for no expert."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.gate = torch.nn.Linear(4, 5)
        self.weight = torch.nn.Parameter(torch.randn(5, 4, 4))

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mask = functional.one_hot(chosen, 6).permute(2, 1, 0)
        summed = torch.zeros_like(x)
        for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
            which, row = torch.where(mask[expert[0]])
            given = x[row] @ self.weight[expert[0]] * weights[row, which, None]
            summed.index_add_(0, row, given)
        return summed


def _anchors(count: int) -> Any:
    middles, sizes = torch.rand(count, 2) * 80 + 10, torch.rand(count, 2) * 20 + 5
    return torch.cat([middles - sizes / 2, middles + sizes / 2], 1)


def _one_stage(shift: float) -> tuple[Any, ...]:
    return tuple((torch.randn(n, 3) + shift, torch.randn(n, 4) * 0.3, _anchors(n)) for n in (12, 5))


def _two_stages(shift: float) -> tuple[Any, ...]:
    return (
        *(torch.randn(15) + shift / 9, _anchors(15)),
        *(torch.randn(3, n, n) for n in (12, 6)),
    )


@pytest.mark.parametrize(
    ("module", "drawn"),
    [
        (_OneStage, _one_stage),
        (_TwoStages, _two_stages),
        (_Experts, lambda shift: (torch.randn(3, 4) + shift,)),
        (_StackedExperts, lambda shift: (torch.randn(3, 4) + shift,)),
    ],
)
def test_rows_chosen_among_rows_are_those_of_pytorch(module: Any, drawn: Any) -> None:
    _nms()
    torch.manual_seed(3)
    net = module().eval()
    loaded = load_model(net, example_inputs=drawn(0.0))
    cut = rows_of(loaded)
    leaves = torch.utils._pytree.tree_leaves
    for shift in (0.0, 9.0, -9.0):
        inputs = drawn(shift)
        found = cut_rows(cut, evaluate(loaded.mod, [x.numpy() for x in leaves(inputs)]))
        with torch.no_grad():
            wanted = leaves(net(*inputs))
        assert len(found) == len(wanted)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-4)


class _Limited(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Computes with how many rows are taken, which is one or none."""

    def forward(self, x: Any) -> Any:
        found = (x.sum(1) > 0).nonzero().squeeze(1)
        many = min(1, len(found))
        return x[found[:many]].sum(0) + many


def test_numbers_that_a_limit_makes_one_are_no_constants() -> None:
    with pytest.raises(ModelError):
        load_model(_Limited(), example_inputs=(torch.ones(5, 3),))
