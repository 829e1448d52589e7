"""Resized images: what each element reads, and with which weights, is found when compiling.

An interpolation treats each axis by itself, so a row of the result is made in two steps: the few
rows of the image that it lies between become one, whole vectors at a time, and that one, which
stays in the first-level cache, is read at the places of a table. TVM's own computes places and
weights for each element, and reads every row that an element lies between for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, topi

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.legalization import OUT_FUSABLE, default_legalization
from collage.backends.tvm.cpu.schedules import resize

_FARTHEST = 4
"""Times that an image may have been wider than its result: beyond, most of what the first step
makes of a row is never read."""


@dataclass(frozen=True)
class Taps:
    """What the elements along an axis are made of.

    Attributes
    ----------
    before : int
        Elements along the axis that is read.
    places : NDArray
        ``(taps, elements)``; within the axis that is read.
    weights : NDArray
        Of each of them.
    """

    before: int
    places: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def changes_nothing(self) -> bool:
        """Whether every element is the one at its own place."""
        after = self.places.shape[1]
        own = (self.places == np.arange(after)) | (self.weights == 0)
        return self.before == after and bool(np.all(own))


def legalize_resize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A linear or cubic interpolation of float32 images, channels first; TVM's own for all else.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a resize along two axes.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    data, attrs = call.args[0], call.attrs
    before, after = tensor_shape(data), tensor_shape(call)
    taken = str(attrs.layout) == "NCHW" and str(attrs.method) in ("linear", "cubic")
    floats = str(data.ty.dtype) == str(call.ty.dtype) == "float32"
    if before is None or after is None or 0 in (*before, *after) or not (taken and floats):
        return default_legalization(builder, call)
    rows, columns = (taps(b, a, attrs) for b, a in zip(before[2:], after[2:], strict=True))
    if rows is None or columns is None or before[3] > _FARTHEST * after[3]:
        return default_legalization(builder, call)
    tables = [
        relax.const(table)
        for one in (rows, columns)
        if not one.changes_nothing
        for table in (one.places, one.weights)
    ]
    steps = [
        step
        for step, one in ((resize.between_rows, rows), (resize.between_columns, columns))
        if not one.changes_nothing
    ]

    def resized(x: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        for number, step in enumerate(steps):
            x = step(x, *tables[2 * number : 2 * number + 2])
        return x if steps else topi.identity(x)

    return builder.call_te(
        resized,
        data,
        *tables,
        primfunc_name_hint="resize2d",
        primfunc_attrs=OUT_FUSABLE,
    )


def taps(before: int, after: int, attrs: Any) -> Taps | None:
    """What elements along one axis are made of; None where it takes more than the sizes to say.

    Parameters
    ----------
    before, after : int
        Elements along the axis.
    attrs : relax.op.image.Resize2DAttrs
        How it is resized.

    Returns
    -------
    Taps or None
        Places beyond an end are the end's; those without weight may be any.
    """
    walked = _walk(before, after, str(attrs.coordinate_transformation_mode))
    if walked is None:
        return None
    first = np.floor(walked)
    part = walked - first
    if str(attrs.method) == "linear":
        offsets = np.arange(2)
        weights = np.stack([1 - part, part])
    else:
        offsets = np.arange(-1, 3)
        weights = _cubic(part, float(attrs.cubic_alpha))
    places = first.astype(np.int64) + offsets[:, None]
    inside = (places >= 0) & (places < before)
    if str(attrs.method) == "cubic" and int(attrs.cubic_exclude):
        weights = np.where(inside, weights, 0)
        weights = weights / weights.sum(axis=0)
    places = np.clip(places, 0, before - 1)
    return Taps(before, places.astype(np.int32), weights.astype(np.float32))


def _walk(before: int, after: int, mode: str) -> NDArray[np.float64] | None:
    """Where the elements of an axis lie on the one that is read."""
    place = np.arange(after, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (place + 0.5) * before / after - 0.5
        case "pytorch_half_pixel":
            return (place + 0.5) * before / after - 0.5 if after > 1 else place
        case "asymmetric":
            return place * before / after
        case "align_corners" if after > 1:
            return place * (before - 1) / (after - 1)
    return None


def _cubic(part: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Weights of the four elements around a place (Keys, IEEE TASSP 29, 1981)."""
    distances = np.abs(np.stack([part + 1, part, part - 1, part - 2]))
    near = (alpha + 2) * distances**3 - (alpha + 3) * distances**2 + 1
    far = alpha * (distances**3 - 5 * distances**2 + 8 * distances - 4)
    return np.where(distances <= 1, near, far)
