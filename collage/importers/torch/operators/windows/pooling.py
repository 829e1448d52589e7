"""Windows that are known beforehand: antialiased interpolations, maxima and their places, means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from tvm import relax
from tvm.relax import op

from collage.importers.torch.operators.arguments import Importer, arguments, dtype_of, shape_of
from collage.importers.windows import elements_of_windows, maxima_with_places


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
    """Maxima of windows that cover each axis, which may overlap; their places where used."""
    x, sizes = arguments(importer, node, "self", "output_size")
    shape = shape_of(x)
    if _asks_for_places(node):
        extents = shape[len(shape) - len(sizes) :]
        along = []
        for before, after in zip(extents, sizes, strict=True):
            begins = np.arange(after) * before // after
            ends = -(-np.arange(1, after + 1) * before // after)
            steps = begins[:, None] + np.arange((ends - begins).max())
            along.append(np.where(steps < ends[:, None], steps, before))
        return _with_places(importer, x, along)
    for axis, after in enumerate(sizes, len(shape) - len(sizes)):
        x = _maxima_along(importer, x, axis, int(after))
    # Nobody takes the second.
    return x, x


def _maxima_along(importer: Importer, x: relax.Expr, axis: int, after: int) -> relax.Expr:
    """Maxima of windows along an axis: those shorter than others hold their last element again."""
    shape = shape_of(x)
    before = shape[axis]
    begins = np.arange(after) * before // after
    ends = -(-np.arange(1, after + 1) * before // after)
    longest = int((ends - begins).max())
    places = np.minimum(begins[:, None] + np.arange(longest), ends[:, None] - 1).reshape(-1)
    if len(places) != before:
        x = importer.emit(op.take(x, relax.const(places.astype("int64")), axis, mode="fast"))
    windows = [*shape[:axis], after, longest, *shape[axis + 1 :]]
    return importer.emit(op.max(importer.emit(op.reshape(x, windows)), [axis + 1]))


def _asks_for_places(node: fx.Node) -> bool:
    """Whether the second result has a user."""
    return any(user.args[1] == 1 and user.users for user in node.users)


def _max_pool(importer: Importer, node: fx.Node) -> Any:
    """TVM's, but where the maxima's places are asked for, or no strides are given."""
    x, kernel, stride, padding, dilation, ceil = arguments(
        importer, node, "self", "kernel_size", "stride", "padding", "dilation", "ceil_mode"
    )
    rank = 3 if "3d" in str(node.target) else 2
    kernel = _each(kernel, rank)
    strides = _each(stride, rank) if stride else kernel
    pads, dilations = _each(padding, rank), _each(dilation, rank)
    if not _asks_for_places(node):
        if stride:
            return None
        pool = op.nn.max_pool3d if rank == 3 else op.nn.max_pool2d
        shape = shape_of(x)
        samples = x if len(shape) == rank + 2 else importer.emit(op.reshape(x, [1, *shape]))
        found = importer.emit(pool(samples, kernel, strides, pads, dilations, bool(ceil)))
        if samples is not x:
            found = importer.emit(op.reshape(found, shape_of(found)[1:]))
        return found, found  # Nobody takes the second.
    along = []
    for axis, extent in enumerate(shape_of(x)[-rank:]):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        count = _windows_along(extent, reach, strides[axis], pads[axis], bool(ceil))
        steps = np.arange(count)[:, None] * strides[axis] - pads[axis]
        along.append(steps + np.arange(kernel[axis]) * dilations[axis])
    return _with_places(importer, x, along)


def _each(value: Any, rank: int) -> list[int]:
    """One number for all axes, or one each."""
    given = [value] if isinstance(value, int) else [int(one) for one in value]
    return given * rank if len(given) == 1 else given


def _windows_along(extent: int, reach: int, stride: int, pad: int, ceil: bool) -> int:
    """How many windows there are; one that begins behind the end is none."""
    room = extent + 2 * pad - reach
    count = (-(-room // stride) if ceil else room // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= extent + pad else count


def _with_places(
    importer: Importer, x: relax.Expr, along: list[NDArray[Any]]
) -> tuple[relax.Expr, relax.Expr]:
    """PyTorch counts places within each plane; a plane may come without samples."""
    shape = shape_of(x)
    extents = shape[len(shape) - len(along) :]
    planes = importer.emit(op.reshape(x, [1, math.prod(shape[: -len(along)]), *extents]))
    elements = elements_of_windows(extents, along)
    found = maxima_with_places(
        *(importer.emit, planes, shape_of(planes)),
        *(elements, np.append(np.arange(math.prod(extents)), 0)),
    )
    result = [*shape[: -len(along)], *elements.shape[:-1]]
    maxima, places = (importer.emit(op.reshape(one, result)) for one in found)
    return maxima, places


def _average(importer: Importer, node: fx.Node) -> relax.Expr | None:
    """TVM's, but where the sums are divided by a given number, which TVM's leaves out."""
    x, kernel, stride, padding, ceil, divisor = arguments(
        *(importer, node, "self", "kernel_size", "stride", "padding", "ceil_mode"),
        "divisor_override",
    )
    if "float" not in dtype_of(x):
        raise TypeError("a mean of whole numbers over windows; convert them to float before")
    if divisor is None:
        return None
    rank = 3 if "3d" in str(node.target) else 2
    kernel, pads = _each(kernel, rank), _each(padding, rank)
    strides = _each(stride, rank) if stride else kernel
    shape = shape_of(x)
    extents = shape[len(shape) - rank :]
    around = [0, 0] * 2
    for axis, extent in enumerate(extents):
        count = _windows_along(extent, kernel[axis], strides[axis], pads[axis], bool(ceil))
        behind = (count - 1) * strides[axis] + kernel[axis] - extent - pads[axis]
        around += [pads[axis], max(behind, 0)]
    samples = [1] * (rank + 2 - len(shape)) + shape
    whole = importer.emit(op.reshape(x, samples))
    whole = importer.emit(op.nn.pad(whole, around))
    pool = op.nn.avg_pool3d if rank == 3 else op.nn.avg_pool2d
    means = importer.emit(pool(whole, tuple(kernel), tuple(strides)))
    kind = dtype_of(x)
    sums = importer.emit(op.multiply(means, relax.const(math.prod(kernel) / divisor, kind)))
    return importer.emit(op.reshape(sums, shape[: len(shape) - rank] + shape_of(sums)[2:]))


WINDOWS: dict[str, Callable[[Importer, fx.Node], Any]] = {
    "_upsample_bilinear2d_aa.default": _antialiased,
    "_upsample_bicubic2d_aa.default": _antialiased,
    "avg_pool2d.default": _average,
    "avg_pool3d.default": _average,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
    "adaptive_max_pool2d.default": _adaptive_max,
    "adaptive_max_pool3d.default": _adaptive_max,
}
"""By the name that the translator has for an operator."""
