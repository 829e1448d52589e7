"""Tensors as extents and strides: a ``permute_dims`` beside a product only changes numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A tensor in memory: extents and strides, both counted in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def dense(cls, shape: Sequence[int]) -> View:
        """The row-major view of a whole tensor."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return cls(tuple(shape), tuple(strides))

    def permuted(self, axes: Sequence[int]) -> View:
        """The view after ``permute_dims``."""
        return View(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes))

    def transposed(self) -> View:
        """The view with its last two axes swapped."""
        rank = len(self.shape)
        return self.permuted([*range(rank - 2), rank - 1, rank - 2])

    def broadcast_batch(self, batch: Sequence[int]) -> View:
        """The view with its axes before the last two broadcast to ``batch``, without copying."""
        missing = len(batch) - (len(self.shape) - 2)
        own = (1,) * missing + self.shape[:-2]
        strides = (0,) * missing + self.strides[:-2]
        kept = [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
        return View((*batch, *self.shape[-2:]), (*kept, *self.strides[-2:]))


def merge_batch_axes(*views: View) -> tuple[View, ...]:
    """Drop batch axes of extent 1 and merge neighbours that one stride describes in every view.

    Parameters
    ----------
    views : View
        Equal in their axes before the last two.
    """
    extents: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for axis, extent in enumerate(views[0].shape[:-2]):
        here = [view.strides[axis] for view in views]
        if extent == 1:
            continue
        if extents and all(s[-1] == h * extent for s, h in zip(strides, here, strict=True)):
            extents[-1] *= extent
            for own, stride in zip(strides, here, strict=True):
                own[-1] = stride
            continue
        extents.append(extent)
        for own, stride in zip(strides, here, strict=True):
            own.append(stride)
    return tuple(
        View((*extents, *view.shape[-2:]), (*own, *view.strides[-2:]))
        for view, own in zip(views, strides, strict=True)
    )


def fold_batch_into_rows(a: View, b: View, c: View) -> tuple[View, View, View]:
    """Make the last batch axis more rows of one product, where ``b`` is shared along it."""
    if len(c.shape) == 2 or b.strides[-3] != 0:
        return a, b, c
    a_step, c_step = _folded_row_stride(a), _folded_row_stride(c)
    if a_step is None or c_step is None:
        return a, b, c
    extent = c.shape[-3]

    def folded(view: View, step: int) -> View:
        return View(
            (*view.shape[:-3], view.shape[-2] * extent, view.shape[-1]),
            (*view.strides[:-3], step, view.strides[-1]),
        )

    dropped = View((*b.shape[:-3], *b.shape[-2:]), (*b.strides[:-3], *b.strides[-2:]))
    return folded(a, a_step), dropped, folded(c, c_step)


def _folded_row_stride(view: View) -> int | None:
    """The one stride of rows across the last batch axis, or None where a product cannot use it."""
    batch_stride, row_stride = view.strides[-3], view.strides[-2]
    if view.shape[-2] > 1 and batch_stride != row_stride * view.shape[-2]:
        return None
    step = batch_stride if view.shape[-2] == 1 else row_stride
    fits = view.strides[-1] == 1 or view.shape[-1] == 1 or step == 1
    return step if step > 0 and fits else None
