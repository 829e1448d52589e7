"""Lets torchvision be imported beside a PyTorch that its C++ operators were not built for.

Its wheels are built against CUDA, and beside a CPU build of PyTorch their library does not load.
The networks do not call its operators, but the import registers what they do on meta tensors, and
fails where one was never declared. Declared they are here, not implemented: calling one fails.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

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
