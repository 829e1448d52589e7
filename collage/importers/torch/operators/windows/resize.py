"""Interpolations of exported programs, kept whole: taken apart they would be gathers and products.

An interpolation along one axis or three is one along two, done once or twice, for linear and
nearest interpolation treat each axis by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._decomp import decomposition_table
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of

_LINEAR = {"upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec"}
_NEAREST = {f"upsample_nearest{rank}d.vec" for rank in (1, 2, 3)}
_EXACT = {f"_upsample_nearest_exact{rank}d.vec" for rank in (1, 2, 3)}
_CUBIC = {"upsample_bicubic2d.vec"}


def keep_whole(table: dict[Any, Any]) -> None:
    """Let a decomposition table leave those interpolations alone that are simple.

    Where a scale was given that the sizes do not have between them, PyTorch walks over the input
    with the scale, and the library operators with the sizes: those are still taken apart.
    """
    for name in RESIZES:
        operator, overload = name.split(".")
        target = getattr(getattr(torch.ops.aten, operator), overload)
        apart = table.pop(target, None) or decomposition_table[target]
        table[target] = _where_uneven(apart)
    table.pop(torch.ops.aten.grid_sampler_2d.default, None)


def _where_uneven(apart: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(x: Any, size: Any, *rest: Any, **keywords: Any) -> Any:
        scales = keywords.get("scale_factors", rest[-1] if rest else None)
        if not scales or not isinstance(scales, list | tuple):
            return NotImplemented
        extents = x.shape[2:]
        even = all(
            math.isclose(float(scale) * n, math.floor(float(scale) * n))
            for scale, n in zip(scales, extents, strict=True)
        )
        return NotImplemented if even else apart(x, size, *rest, **keywords)

    return decompose


def _resize(importer: Importer, node: fx.Node) -> relax.Expr:
    x, size, scales, corners = arguments(
        importer, node, "input", "output_size", "scale_factors", "align_corners"
    )
    name = node.target.__name__
    extents = shape_of(x)[2:]
    if size is None:
        size = [math.floor(n * s) for n, s in zip(extents, scales, strict=True)]
    size = [int(n) for n in size]
    if size == extents:
        return x
    if name in _LINEAR | _CUBIC and "float" not in dtype_of(x):
        # PyTorch has weights of 16 bits there, and roundings that depend on them.
        raise TypeError(f"an interpolation of {dtype_of(x)}; convert it to float before")
    how = _how(name, bool(corners))
    batch, channels = shape_of(x)[:2]
    if len(size) == 2:
        return _planes(importer, x, (size[0], size[1]), how)
    if len(size) == 1:
        wide = _along_one(importer, x, 1, batch * channels, extents[0], size[0], how)
        return importer.emit(op.reshape(wide, [batch, channels, size[0]]))
    depth, height, width = extents
    flat = importer.emit(op.reshape(x, [batch, channels * depth, height, width]))
    flat = _planes(importer, flat, (size[1], size[2]), how)
    plane = size[1] * size[2]
    if plane > 1:
        flat = importer.emit(op.reshape(flat, [batch * channels, 1, depth, plane]))
        flat = _planes(importer, flat, (size[0], plane), how)
        return importer.emit(op.reshape(flat, [batch, channels, *size]))
    flat = importer.emit(op.reshape(flat, [batch * channels, depth, plane]))
    turned = importer.emit(op.permute_dims(flat, [0, 2, 1]))
    done = _along_one(importer, turned, batch * channels, plane, depth, size[0], how)
    turned = importer.emit(op.reshape(done, [batch * channels, plane, size[0]]))
    flat = importer.emit(op.permute_dims(turned, [0, 2, 1]))
    return importer.emit(op.reshape(flat, [batch, channels, *size]))


def _along_one(
    importer: Importer,
    x: relax.Expr,
    images: int,
    rows: int,
    before: int,
    after: int,
    how: dict[str, Any],
) -> relax.Expr:
    """Rows of ``before`` values become rows of ``after``: images as high as they were."""
    flat = importer.emit(op.reshape(x, [images, 1, rows, before]))
    return _planes(importer, flat, (rows, after), how)


def _planes(
    importer: Importer, x: relax.Expr, size: tuple[int, int], how: dict[str, Any]
) -> relax.Expr:
    """Images of another size.

    Where corners are aligned an axis of one place is what the first place had, and TVM divides by
    how many there are besides the first: the axis has that place twice meanwhile.
    """
    single = [2 + i for i, n in enumerate(size) if n == 1]
    if how["coordinate_transformation_mode"] != "align_corners" or not single:
        return importer.emit(op.image.resize2d(x, size, **how))
    for axis in single:
        if shape_of(x)[axis] > 1:
            x = importer.emit(op.strided_slice(x, [axis], [0], [1]))
    if shape_of(x)[2:] == list(size):
        return x
    for axis in single:
        x = importer.emit(op.repeat(x, 2, axis))
    wide = importer.emit(op.image.resize2d(x, tuple(max(2, n) for n in size), **how))
    count = len(single)
    return importer.emit(op.strided_slice(wide, single, [0] * count, [1] * count))


def _how(name: str, corners: bool) -> dict[str, Any]:
    """The same interpolation in TVM's words."""
    if name in _NEAREST:
        walk, round_to = "asymmetric", "floor"
    elif name in _EXACT:
        walk, round_to = "half_pixel", "round_prefer_ceil"
    else:
        walk, round_to = "align_corners" if corners else "half_pixel", ""
    method = "linear" if name in _LINEAR else "cubic" if name in _CUBIC else "nearest_neighbor"
    return {
        "layout": "NCHW",
        "method": method,
        "coordinate_transformation_mode": walk,
        "rounding_method": round_to,
        "cubic_alpha": -0.75,
    }


RESIZES = dict.fromkeys(sorted(_LINEAR | _NEAREST | _EXACT | _CUBIC), _resize)
"""Every interpolation that is kept whole, by name."""
