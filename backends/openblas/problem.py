"""What OpenBLAS is asked to do for one partition: a batch of matrix products in its own terms.

A matrix fits BLAS when its rows or its columns are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.strided_views import View, row_major_product

_MAX_BATCH_AXES = 6
"""Room for batch axes in the runtime's ``collage_matmul``."""
_MAX_BLAS_INT = 2**31 - 1
"""OpenBLAS of this wheel counts with 32-bit integers."""


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


def plan(a: View, b: View, c: View) -> Problem:
    """Express a product of views for BLAS.

    A single column becomes a single row (matrix-vector products then have one form only), and a
    result whose columns are contiguous is computed as its transpose.

    Parameters
    ----------
    a, b, c : View
        Two operands and the result, all with the same batch axes.

    Returns
    -------
    Problem
        With leading dimensions, and strides of the batch axes, as BLAS takes them.

    Raises
    ------
    UnsupportedProblemError
        When neither rows nor columns of an operand are contiguous, a size does not fit BLAS's
        integers, or too many batch axes are left.
    """
    a, b, c, swapped = row_major_product(a, b, c)
    rows, columns, inner = a.shape[-2], b.shape[-1], a.shape[-1]
    batch = c.shape[:-2]
    if len(batch) > _MAX_BATCH_AXES:
        raise UnsupportedProblemError(f"{len(batch)} batch axes; at most {_MAX_BATCH_AXES}")
    result = _matrix("result", c)
    if result.transposed:
        raise UnsupportedProblemError("the result has neither rows nor columns contiguous")
    if max(rows, columns, inner) > _MAX_BLAS_INT:
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
    transposed, leading = view.matrix(what)
    if leading > _MAX_BLAS_INT:
        raise UnsupportedProblemError(f"the {what} does not fit BLAS's 32-bit integers")
    return Matrix(transposed, leading, view.strides[:-2])
