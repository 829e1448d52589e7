"""What OpenBLAS is asked to do for one partition: a batch of matrix products in its own terms.

Views, not copies: a tensor is its extents and strides, so a ``permute_dims`` before or after the
product only changes numbers. A matrix fits BLAS when its rows or its columns are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MAX_BATCH_AXES = 6
"""Room for batch axes in the runtime's ``collage_matmul``."""
MAX_BLAS_INT = 2**31 - 1
"""OpenBLAS of this wheel counts with 32-bit integers."""


class UnsupportedProblemError(ValueError):
    """A product that BLAS cannot run on the data as it lies; the message says why."""


@dataclass(frozen=True)
class View:
    """A tensor in memory: extents and strides, both in elements."""

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

    def inserted(self, axis: int) -> View:
        """The view with a new axis of extent 1 at ``axis``."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return View(tuple(shape), tuple(strides))

    def batch_broadcast(self, batch: Sequence[int]) -> View:
        """The view with its axes before the last two broadcast to ``batch``, without copying."""
        missing = len(batch) - (len(self.shape) - 2)
        own = (1,) * missing + self.shape[:-2]
        strides = (0,) * missing + self.strides[:-2]
        kept = [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
        return View((*batch, *self.shape[-2:]), (*kept, *self.strides[-2:]))

    def transposed(self) -> View:
        """The view with its last two axes swapped."""
        axes = list(range(len(self.shape)))
        return self.permuted([*axes[:-2], axes[-1], axes[-2]])


@dataclass(frozen=True)
class Matrix:
    """How BLAS reads the matrices of one operand.

    Attributes
    ----------
    transposed : bool
        Whether columns, not rows, are contiguous.
    leading : int
        Elements from one contiguous run to the next.
    batch_strides : tuple of int
        Elements from one matrix to the next, per batch axis; 0 where it is broadcast.
    """

    transposed: bool
    leading: int
    batch_strides: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """``c[i] = a[i] @ b[i]`` for every index ``i`` of ``batch``; c's rows are contiguous.

    ``swapped`` tells that a and b changed places, both transposed: the product computed is the
    transpose of the one asked for. ``rows`` × ``inner`` is the extent of a, ``inner`` × ``columns``
    that of b.
    """

    rows: int
    columns: int
    inner: int
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    c: Matrix
    swapped: bool


def matmul_views(lhs: View, rhs: View, result: View | None = None) -> tuple[View, View, View]:
    """Operands and result of NumPy's ``matmul`` as batches of matrices with equal batch axes.

    Parameters
    ----------
    lhs, rhs : View
        The operands, of one axis or more.
    result : View, optional
        Where the result goes, when not dense.
    """
    if len(lhs.shape) == 1 or len(rhs.shape) == 1:
        if result is not None:
            raise UnsupportedProblemError("a product with a vector has no result to permute")
        a = lhs.inserted(0) if len(lhs.shape) == 1 else lhs
        b = rhs.inserted(1) if len(rhs.shape) == 1 else rhs
        return matmul_views(a, b)
    batch = _broadcast(lhs.shape[:-2], rhs.shape[:-2])
    a, b = lhs.batch_broadcast(batch), rhs.batch_broadcast(batch)
    c = result or View.dense((*batch, lhs.shape[-2], rhs.shape[-1]))
    return a, b, c


def _broadcast(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(left), len(right))
    padded = zip(
        (1,) * (rank - len(left)) + tuple(left),
        (1,) * (rank - len(right)) + tuple(right),
        strict=True,
    )
    return tuple(max(pair) for pair in padded)


def plan(a: View, b: View, c: View) -> Problem:
    """Express a product of views for BLAS.

    A single column becomes a single row (matrix-vector products then have one form only), and a
    result whose columns are contiguous is computed as its transpose.

    Raises
    ------
    UnsupportedProblemError
        When neither rows nor columns of an operand are contiguous, a size does not fit BLAS's
        integers, or too many batch axes are left.
    """
    a, b, c = _fold_into_rows(*_merge_batch_axes(a, b, c))
    lone_column = c.shape[-1] == 1 and c.shape[-2] > 1 and c.strides[-2] == 1
    swapped = lone_column or (c.shape[-1] > 1 and c.strides[-1] != 1)
    if swapped:
        a, b, c = b.transposed(), a.transposed(), c.transposed()
        a, b, c = _fold_into_rows(a, b, c)
    rows, columns, inner = a.shape[-2], b.shape[-1], a.shape[-1]
    batch = c.shape[:-2]
    if len(batch) > MAX_BATCH_AXES:
        raise UnsupportedProblemError(f"{len(batch)} batch axes; at most {MAX_BATCH_AXES}")
    result = _matrix("result", c)
    if result.transposed:
        raise UnsupportedProblemError("the result has neither rows nor columns contiguous")
    if max(rows, columns, inner) > MAX_BLAS_INT:
        raise UnsupportedProblemError("an extent does not fit BLAS's 32-bit integers")
    return Problem(
        rows,
        columns,
        inner,
        batch,
        _matrix("left operand", a),
        _matrix("right operand", b),
        result,
        swapped,
    )


def _matrix(what: str, view: View) -> Matrix:
    rows, columns = view.shape[-2:]
    row_stride, column_stride = view.strides[-2:]
    if column_stride == 1 or columns == 1:
        # One row has no stride of its own; BLAS wants at least the row's length.
        transposed, leading = False, columns if rows == 1 else row_stride
    elif row_stride == 1 or rows == 1:
        transposed, leading = True, column_stride
    else:
        raise UnsupportedProblemError(f"the {what} has neither rows nor columns contiguous")
    if leading > MAX_BLAS_INT:
        raise UnsupportedProblemError(f"the {what} does not fit BLAS's 32-bit integers")
    return Matrix(transposed, leading, view.strides[:-2])


def _merge_batch_axes(*views: View) -> tuple[View, ...]:
    """Drop batch axes of extent 1 and merge neighbours that one stride describes in every view."""
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


def _fold_into_rows(a: View, b: View, c: View) -> tuple[View, View, View]:
    """Make the last batch axis more rows of one matrix, where b is shared along it."""
    if len(c.shape) == 2 or b.strides[-3] != 0:
        return a, b, c
    extent = c.shape[-3]
    a_step = _folded_row_stride(a)
    c_step = _folded_row_stride(c)
    if a_step is None or c_step is None:
        return a, b, c

    def folded(view: View, step: int) -> View:
        return View(
            (*view.shape[:-3], view.shape[-2] * extent, view.shape[-1]),
            (*view.strides[:-3], step, view.strides[-1]),
        )

    dropped = View((*b.shape[:-3], *b.shape[-2:]), (*b.strides[:-3], *b.strides[-2:]))
    return folded(a, a_step), dropped, folded(c, c_step)


def _folded_row_stride(view: View) -> int | None:
    """The one stride of rows across the last batch axis, or None where BLAS could not use it."""
    batch_stride, row_stride = view.strides[-3], view.strides[-2]
    if view.shape[-2] > 1 and batch_stride != row_stride * view.shape[-2]:
        return None
    step = batch_stride if view.shape[-2] == 1 else row_stride
    fits = view.strides[-1] == 1 or view.shape[-1] == 1 or step == 1
    return step if step > 0 and fits else None
