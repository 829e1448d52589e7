"""Antialiased interpolations and adaptive maxima: windows of several extents, known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of


def _antialiased(importer: Importer, node: fx.Node) -> relax.Expr:
    """Products with matrices, one an axis; TVM's translator leaves the filter out."""
    x, size, corners, *scales = arguments(
        importer, node, "self", "output_size", "align_corners", "scales_h", "scales_w"
    )
    kind = dtype_of(x)
    if "float" not in kind:
        # PyTorch has weights of 16 bits there, and roundings that depend on them.
        raise TypeError(f"an interpolation of {kind}; convert it to float before")
    wide = kind if kind == "float64" else "float32"
    x = x if kind == wide else importer.emit(op.astype(x, wide))
    *_, height, width = shape_of(x)
    rows = _weights(node.target, height, int(size[0]), bool(corners), scales[0])
    columns = _weights(node.target, width, int(size[1]), bool(corners), scales[1])
    x = importer.emit(op.matmul(x, relax.const(columns.T.astype(wide), wide)))
    x = importer.emit(op.matmul(relax.const(rows.astype(wide), wide), x))
    return x if kind == wide else importer.emit(op.astype(x, kind))


def _weights(
    operator: Callable[..., Any], before: int, after: int, corners: bool, scale: float | None
) -> NDArray[np.float64]:
    """What each result along an axis takes of each element: PyTorch's own answer for them."""
    alone = torch.eye(before, dtype=torch.float64)[None, None]
    found: Any = operator(alone, [after, before], corners, scale, None)
    weights: NDArray[np.float64] = found[0, 0].numpy()
    return weights


def _adaptive_max(importer: Importer, node: fx.Node) -> tuple[relax.Expr, relax.Expr]:
    """Maxima of windows that cover each axis, which may overlap; not their places."""
    x, sizes = arguments(importer, node, "self", "output_size")
    shape = shape_of(x)
    for axis, after in enumerate(sizes, len(shape) - len(sizes)):
        before = shape[axis]
        windows = [(i * before // after, -(-(i + 1) * before // after)) for i in range(after)]
        parts = []
        for begin, end in windows:
            part = importer.emit(op.strided_slice(x, [axis], [begin], [end]))
            parts.append(importer.emit(op.max(part, [axis], keepdims=True)))
        x = importer.emit(op.concat(parts, axis)) if len(parts) > 1 else parts[0]
    # Who takes the places is refused: these are no whole numbers.
    return x, x


WINDOWS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "_upsample_bilinear2d_aa.default": _antialiased,
    "_upsample_bicubic2d_aa.default": _antialiased,
    "adaptive_max_pool2d.default": _adaptive_max,
    "adaptive_max_pool3d.default": _adaptive_max,
}
"""By the name that the translator has for an operator."""
