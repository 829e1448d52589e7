"""torchvision's operators on regions of pictures: cut out, and kept where none better overlaps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of


def _roi_align(importer: Importer, node: fx.Node) -> relax.Expr:
    """TVM's ``aligned`` lets regions be small, but moves none by half a pixel."""
    x, regions, scale, height, width, ratio, aligned = arguments(
        *(importer, node, "input", "rois", "spatial_scale", "pooled_height", "pooled_width"),
        *("sampling_ratio", "aligned"),
    )
    if aligned:
        half = 0.5 / float(scale)
        moved = relax.const(np.array([0, half, half, half, half]), dtype_of(regions))
        regions = importer.emit(op.subtract(regions, moved))
    return importer.emit(
        op.vision.roi_align(
            *(x, regions, (int(height), int(width)), float(scale)),
            sample_ratio=int(ratio),
            aligned=bool(aligned),
            layout="NCHW",
            mode="avg",
        )
    )


def _roi_pool(importer: Importer, node: fx.Node) -> tuple[relax.Expr, None]:
    """The maxima; where they were, only training asks."""
    x, regions, scale, height, width = arguments(
        importer, node, "input", "rois", "spatial_scale", "pooled_height", "pooled_width"
    )
    size = (int(height), int(width))
    return importer.emit(op.vision.roi_pool(x, regions, size, float(scale), "NCHW")), None


@cache
def _unhidden() -> Any:
    """The operator: which boxes, the best of which come first, overlap none that is kept."""
    torch.library.define("collage::unhidden", "(Tensor boxes, float overlap) -> Tensor")
    torch.library.register_fake(
        "collage::unhidden",
        lambda boxes, overlap: boxes.new_empty(boxes.shape[:1], dtype=torch.bool),
    )
    torch.library.impl("collage::unhidden", "cpu", _found_unhidden)
    return torch.ops.collage.unhidden.default


def _found_unhidden(boxes: torch.Tensor, overlap: float) -> torch.Tensor:
    low, high = boxes[:, :2], boxes[:, 2:]
    area = (high - low).prod(1)
    sides = torch.minimum(high[:, None], high[None]) - torch.maximum(low[:, None], low[None])
    shared = sides.clamp(min=0).prod(2)
    hides = (shared > 0) & (shared / (area[:, None] + area[None] - shared) > overlap)
    kept = torch.ones(len(boxes), dtype=torch.bool)
    for i in range(1, len(boxes)):
        kept[i] = not bool((hides[i, :i] & kept[:i]).any())
    return kept


def suppressed(boxes: torch.Tensor, scores: torch.Tensor, overlap: float) -> torch.Tensor:
    """The numbers of the boxes that are kept, the best first.

    Parameters
    ----------
    boxes : torch.Tensor
        Two corners each.
    scores : torch.Tensor
        Of each.
    overlap : float
        The share of both, of which more hides the worse.

    Returns
    -------
    torch.Tensor
        ``NotImplemented`` where there are none.
    """
    if not all(isinstance(n, int) and n > 0 for n in boxes.shape):
        return NotImplemented
    order = torch.sort(scores, descending=True, stable=True)[1]
    kept = _unhidden()(boxes.index_select(0, order), overlap)
    found: torch.Tensor = torch.ops.aten.index.Tensor(order, [kept])
    return found


def choosing() -> dict[Any, Callable[..., Any]]:
    """What chooses rows, by operator, in terms of what PyTorch has; none without torchvision."""
    return {torch.ops.torchvision.nms.default: suppressed} if _has_torchvision() else {}


def _has_torchvision() -> bool:
    return hasattr(torch.ops.torchvision, "nms")


def _unhidden_boxes(importer: Importer, node: fx.Node) -> relax.Expr:
    boxes, overlap = arguments(importer, node, "boxes", "overlap")
    (count,) = shape_of(boxes)[:1]

    def kept(boxes: te.Tensor) -> te.Tensor:
        return te.extern(
            (count,),
            [boxes],
            lambda ins, outs: _one_by_one(ins[0], outs[0], float(overlap)),
            dtype="int8",
            name="unhidden",
        )

    found = importer.block_builder.emit_te(kept, boxes, primfunc_name_hint="unhidden")
    return importer.emit(op.astype(found, "bool"))


def _one_by_one(given: tirx.Buffer, result: tirx.Buffer, overlap: float) -> tirx.Stmt:
    """The program: each box against those that were kept before it."""
    count = int(given.shape[0])
    with IRBuilder() as program, T.seq_scope():
        boxes, kept = T.buffer_proxy(given), T.buffer_proxy(result)
        zero = tirx.const(0, given.dtype)

        def side(low: Any, high: Any) -> Any:
            return tirx.max(high - low, zero)

        def area(i: Any) -> Any:
            return (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])

        def hides(j: Any, i: Any) -> Any:
            lows = [tirx.max(boxes[i, n], boxes[j, n]) for n in range(2)]
            highs = [tirx.min(boxes[i, n + 2], boxes[j, n + 2]) for n in range(2)]
            shared = side(lows[0], highs[0]) * side(lows[1], highs[1])
            share = shared / (area(i) + area(j) - shared)
            # Of two without an area the share is no number, and hides none.
            limit = tirx.const(overlap, given.dtype)
            return tirx.all(kept[j] > T.int8(0), shared > zero, share > limit)

        with T.serial(0, count) as i, T.seq_scope():
            kept[i] = T.int8(1)
            with T.serial(0, i) as j:
                kept[i] = tirx.if_then_else(hides(j, i), T.int8(0), kept[i])
    return program.get()


REGIONS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "roi_align.default": _roi_align,
    "roi_pool.default": _roi_pool,
    "unhidden.default": _unhidden_boxes,
}
"""By the name that the translator has for an operator."""
