"""Overlapping windows along an axis, and any other walk over the memory of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, shape_of
from collage.importers.torch.operators.errors import RefusedError

_MOST_PIECES = 16


def _windows(importer: Importer, node: fx.Node) -> relax.Expr:
    """``x.unfold(axis, size, step)``: overlapping windows along an axis, their values last."""
    x, axis, size, step = arguments(importer, node, "self", "dimension", "size", "step")
    shape = shape_of(x)
    axis %= len(shape)
    begins = np.arange(0, shape[axis] - size + 1, step)
    pieces = _in_pieces(importer, x, axis, size, step)
    if pieces is not None:
        order = [i for i in range(len(shape) + 1) if i != axis + 1]
        return importer.emit(op.permute_dims(pieces, [*order, axis + 1]))
    places = begins[:, None] + np.arange(size)
    taken = importer.emit(op.take(x, relax.const(places.astype("int64")), axis))
    order = [i for i in range(len(shape) + 1) if i != axis + 1]
    return importer.emit(op.permute_dims(taken, [*order, axis + 1]))


def _in_pieces(
    importer: Importer, x: relax.Expr, axis: int, size: int, step: int
) -> relax.Expr | None:
    """Windows along an axis and, behind it, what is in them: pieces that all begin at multiples of
    one number, side by side. None where they would be many."""
    shape, width = shape_of(x), math.gcd(size, step)
    count = (shape[axis] - size) // step + 1
    if not 0 < size // width <= _MOST_PIECES or count < 2:
        return None
    held = (count - 1) * step + size
    emit = importer.emit
    cut = x if held == shape[axis] else emit(op.strided_slice(x, [axis], [0], [held]))
    split = [*shape[:axis], held // width, width, *shape[axis + 1 :]]
    blocks, apart = emit(op.reshape(cut, split)), step // width
    parts = [
        emit(op.strided_slice(blocks, [axis], [at], [at + (count - 1) * apart + 1], [apart]))
        for at in range(size // width)
    ]
    return emit(op.concat(parts, axis + 1)) if len(parts) > 1 else parts[0]


def _strided(importer: Importer, node: fx.Node) -> relax.Expr:
    """Any walk over the memory of a tensor that fills it, in whatever order its axes lie."""
    x, size, stride, offset = arguments(importer, node, "self", "size", "stride", "storage_offset")
    lies = node.args[0].meta["val"]
    axes = _in_order(lies)
    begin = 0 if offset is None else offset - lies.storage_offset()
    last = begin + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    if axes is None or begin < 0 or last >= lies.numel():
        raise RefusedError("a walk over the memory of a tensor that does not lie in order")
    places = np.full((1,) * len(size), begin, dtype="int64")
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[axis] = extent
        places = places + (np.arange(extent) * step).reshape(shape)
    ordered = x if axes == sorted(axes) else importer.emit(op.permute_dims(x, axes))
    flat = importer.emit(op.reshape(ordered, [-1]))
    return importer.emit(op.take(flat, relax.const(places), 0))


def _in_order(tensor: torch.Tensor) -> list[int] | None:
    """A tensor's axes as they lie in memory, the slowest first; None where there are gaps."""
    axes = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), axis))
    wide = [axis for axis in axes if tensor.shape[axis] != 1]
    step = 1
    for axis in reversed(wide):
        if tensor.stride(axis) != step:
            return None
        step *= tensor.shape[axis]
    alone = [axis for axis in axes if tensor.shape[axis] == 1]
    return sorted(axes) if wide == sorted(wide) else [*alone, *wide]


WALKS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "unfold.default": _windows,
    "as_strided.default": _strided,
}
