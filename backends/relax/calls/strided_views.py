"""Tensors as extents and strides: a ``permute_dims`` beside a product only changes numbers.

What libraries of matrix products are asked for is derived here as far as it is the same for all:
how operands lie in memory, which batch axes one stride describes, which are more rows of one
product. Terms are those of NumPy's ``ndarray.strides``, but counted in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.layouts import permutation
from collage.backends.relax.static_shape import static_shape


@dataclass(frozen=True)
class View:
    """A tensor in memory: extents and strides, both in elements.

    Examples
    --------
    >>> view = View.dense((4, 2, 3)).transposed()
    >>> view
    View(shape=(4, 3, 2), strides=(6, 1, 3))
    >>> view.matrix("operand")
    (True, 3)
    """

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

    def inserted(self, axis: int) -> View:
        """The view with a new axis of extent 1 at ``axis``."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return View(tuple(shape), tuple(strides))

    def broadcast_batch(self, batch: Sequence[int]) -> View:
        """The view with its axes before the last two broadcast to ``batch``, without copying."""
        missing = len(batch) - (len(self.shape) - 2)
        own = (1,) * missing + self.shape[:-2]
        strides = (0,) * missing + self.strides[:-2]
        kept = [0 if extent == 1 else stride for extent, stride in zip(own, strides, strict=True)]
        return View((*batch, *self.shape[-2:]), (*kept, *self.strides[-2:]))

    def matrix(self, what: str) -> tuple[bool, int]:
        """How the last two axes lie: as BLAS's transpose flag and leading dimension tell it.

        Parameters
        ----------
        what : str
            Names the tensor in the error.

        Returns
        -------
        by_columns : bool
            Whether columns, not rows, are contiguous.
        leading : int
            Elements from one contiguous run to the next.

        Raises
        ------
        UnsupportedProblemError
            When neither rows nor columns are contiguous.
        """
        rows, columns = self.shape[-2:]
        row_stride, column_stride = self.strides[-2:]
        if column_stride == 1 or columns == 1:
            # One row has no stride of its own; BLAS wants at least the row's length.
            return False, columns if rows == 1 else row_stride
        if row_stride == 1 or rows == 1:
            return True, column_stride
        raise UnsupportedProblemError(
            f"the {what} has neither rows nor columns contiguous", value=self
        )


def operand_view(expr: relax.Expr) -> View:
    """How an operand lies in memory: through its ``permute_dims``, where it is one.

    Raises
    ------
    UnsupportedProblemError
        When it has no static shape.

    Examples
    --------
    >>> x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    >>> operand_view(relax.op.permute_dims(x))
    View(shape=(3, 2), strides=(1, 3))
    """
    axes = permutation(expr)
    if axes is None:
        return View.dense(static_shape(expr, "an operand"))
    return View.dense(static_shape(expr.args[0], "an operand")).permuted(axes)


def result_view(root: relax.Expr) -> View | None:
    """Where a result goes when a ``permute_dims`` follows it, in its own axes; None otherwise.

    Raises
    ------
    UnsupportedProblemError
        When it has no static shape.

    Examples
    --------
    >>> result_view(relax.Var("x", relax.TensorType((2, 3), "float32"))) is None
    True
    >>> call = relax.op.permute_dims(relax.Var("x", relax.TensorType((2, 3), "float32")))
    >>> result_view(relax.BlockBuilder().normalize(call))
    View(shape=(2, 3), strides=(1, 2))
    """
    axes = permutation(root)
    if axes is None:
        return None
    view = View.dense(static_shape(root, "the result"))
    return view.permuted(sorted(range(len(axes)), key=axes.__getitem__))


def matmul_views(lhs: View, rhs: View, result: View | None = None) -> tuple[View, View, View]:
    """Operands and result of NumPy's ``matmul`` as batches of matrices with equal batch axes.

    Parameters
    ----------
    lhs, rhs : View
        The operands, of one axis or more.
    result : View, optional
        Where the result goes, when not dense.

    Returns
    -------
    tuple[View, View, View]
        Operands and result; a vector has become a matrix with one row or column.

    Raises
    ------
    UnsupportedProblemError
        When the result of a product with a vector is not dense.

    Examples
    --------
    >>> lhs, rhs, result = matmul_views(View.dense((8, 2, 3)), View.dense((3, 5)))
    >>> rhs
    View(shape=(8, 3, 5), strides=(0, 5, 1))
    >>> result.shape
    (8, 2, 5)
    """
    if len(lhs.shape) == 1 or len(rhs.shape) == 1:
        if result is not None:
            raise UnsupportedProblemError("a product with a vector has no result to permute")
        a = lhs.inserted(0) if len(lhs.shape) == 1 else lhs
        b = rhs.inserted(1) if len(rhs.shape) == 1 else rhs
        return matmul_views(a, b)
    batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    dense = View.dense((*batch, lhs.shape[-2], rhs.shape[-1]))
    return lhs.broadcast_batch(batch), rhs.broadcast_batch(batch), result or dense


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
    """Make the last batch axis more rows of one product, where ``b`` is shared along it.

    Parameters
    ----------
    a, b, c : View
        Left operand, right operand and result, of equal batch axes.

    Returns
    -------
    tuple[View, View, View]
        The same three where nothing can be folded.
    """
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


def row_major_product(a: View, b: View, c: View) -> tuple[View, View, View, bool]:
    """A product in the form that libraries take: contiguous rows of the result, few batch axes.

    A result whose columns are contiguous is computed as its transpose, and a single column as a
    single row.

    Parameters
    ----------
    a, b, c : View
        Left operand, right operand and result, of equal batch axes.

    Returns
    -------
    a, b, c : View
        What to compute.
    swapped : bool
        Whether that is the transpose: ``a`` and ``b`` have changed places.

    Examples
    --------
    >>> views = matmul_views(View.dense((8, 2, 3)), View.dense((3, 5)))
    >>> a, b, c, swapped = row_major_product(*views)
    >>> a.shape, b.shape, c.shape, swapped
    ((16, 3), (3, 5), (16, 5), False)
    """
    a, b, c = fold_batch_into_rows(*merge_batch_axes(a, b, c))
    rows, columns = c.shape[-2:]
    lone_column = columns == 1 and rows > 1 and c.strides[-2] == 1
    swapped = lone_column or (columns > 1 and c.strides[-1] != 1)
    if swapped:
        a, b, c = fold_batch_into_rows(b.transposed(), a.transposed(), c.transposed())
    return a, b, c, swapped


def _folded_row_stride(view: View) -> int | None:
    """The one stride of rows across the last batch axis, or None where a product cannot use it."""
    batch_stride, row_stride = view.strides[-3], view.strides[-2]
    if view.shape[-2] > 1 and batch_stride != row_stride * view.shape[-2]:
        return None
    step = batch_stride if view.shape[-2] == 1 else row_stride
    fits = view.strides[-1] == 1 or view.shape[-1] == 1 or step == 1
    return step if step > 0 and fits else None
