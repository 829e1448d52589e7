"""Lets torchvision be imported beside a PyTorch that its C++ operators were not built for.

Its wheels are built against CUDA, and beside a CPU build of PyTorch their library does not load.
The import registers what its operators do on meta tensors, and fails where one was never declared.
Whole detectors call one of them, which is computed in PyTorch then.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

_SELECTION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_missing() -> None:
    """Declare what torchvision's import asks for, unless its library brings it."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    for library in sorted(Path(found.origin).parent.glob("_C*.so")):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", _SELECTION)
            torch.library.impl(f"torchvision::{name}", "cpu", _suppressed)


def _suppressed(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Places of boxes that no better one overlaps, the best first."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.argsort(descending=True, stable=True)
    kept: list[int] = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(int(best))
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[~(shared / (areas[best] + areas[order] - shared) > iou_threshold)]
    return torch.tensor(kept, dtype=torch.int64)
