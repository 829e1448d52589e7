"""Which matrix products the kernels take: extents, strides, layouts; or why they do not.

Batch axes are folded into rows wherever all matrices share the right operand, and into one batch
axis otherwise. A ``permute_dims`` of an operand's last two axes becomes a column-major layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cutlass.families._base import DTYPE_BITS, alignment
from collage.backends.cutlass.options import CutlassOptions
from collage.backends.relax.tensor_spec import TensorSpec

_MAX_BATCH = 65535
"""The third axis of a launch grid."""
MAX_EXTENT = 2**31 - 1
"""CUTLASS counts rows, columns and leading dimensions with 32-bit integers."""


@dataclass(frozen=True)
class Operand:
    """A matrix operand as it lies in memory.

    Attributes
    ----------
    shape : tuple of int
        As stored.
    transposed : bool
        Whether the product takes it with its last two axes swapped: column-major, to CUTLASS.
    """

    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def rows(self) -> int:
        return self.shape[-1] if self.transposed else self.shape[-2]

    @property
    def columns(self) -> int:
        return self.shape[-2] if self.transposed else self.shape[-1]

    @property
    def leading(self) -> int:
        """Elements from one contiguous run to the next; also a run's length."""
        return self.shape[-1]

    @property
    def batch(self) -> int:
        return math.prod(self.shape[:-2])

    @property
    def layout(self) -> str:
        """``r`` (row-major) or ``c`` (column-major)."""
        return "c" if self.transposed else "r"


@dataclass(frozen=True)
class GemmProblem:
    """``d[l] = a[l] @ b[l]``: extents, and where the operands' elements lie.

    Attributes
    ----------
    m, n, k, batch : int
        Rows and columns of a result, terms of each element, and number of products.
    lda, ldb : int
        Leading dimensions, in elements.
    batch_stride_a, batch_stride_b : int
        Elements from one matrix to the next; 0 where there is one matrix only.
    layout : str
        ``r`` or ``c`` for a, then for b.
    dtype : str
    """

    m: int
    n: int
    k: int
    batch: int
    lda: int
    ldb: int
    batch_stride_a: int
    batch_stride_b: int
    layout: str
    dtype: str

    @property
    def bits(self) -> int:
        return DTYPE_BITS[self.dtype]

    def tensors(self) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        """Operands and result as stored."""
        batch_a = self.batch if self.batch_stride_a else 1
        batch_b = self.batch if self.batch_stride_b else 1
        a = (self.m, self.k) if self.layout[0] == "r" else (self.k, self.m)
        b = (self.k, self.n) if self.layout[1] == "r" else (self.n, self.k)
        return (
            TensorSpec((batch_a, *a), self.dtype),
            TensorSpec((batch_b, *b), self.dtype),
            TensorSpec((self.batch, self.m, self.n), self.dtype),
        )

    def alignments(self) -> tuple[int, int, int]:
        """Widest accesses to a, b and the result, in elements."""
        return (
            alignment(self.lda, self.bits),
            alignment(self.ldb, self.bits),
            alignment(self.n, self.bits),
        )


def float32_math(options: CutlassOptions) -> str:
    """How float32 products are computed: ``tf32``, ``3xtf32`` or ``simt``."""
    if options.allow_tf32:
        return "tf32"
    return "3xtf32" if options.use_3xtf32 else "simt"


def plan(a: Operand, b: Operand, result: Sequence[int], dtype: str) -> GemmProblem:
    """Express NumPy's ``matmul`` as a batch of matrix products.

    Parameters
    ----------
    a, b : Operand
        Two axes or more.
    result : sequence of int
        Shape of the product.
    dtype : str
        Of operands and result; one of ``DTYPE_BITS``.

    Returns
    -------
    GemmProblem
        With one batch where all rows are multiplied by the same matrix ``b``.

    Raises
    ------
    UnsupportedProblemError
        When the operands' batches are broadcast along some axes only, or something is too large.
    """
    m, n, k, batch = a.rows, b.columns, a.columns, math.prod(result[:-2])
    if b.batch == 1 and not a.transposed:
        m, batch = m * batch, 1
    elif 1 not in (a.batch, b.batch) and _matrices(a) != _matrices(b):
        raise UnsupportedProblemError(
            f"batches {_matrices(a)} and {_matrices(b)} are broadcast against each other"
        )
    if batch > _MAX_BATCH:
        raise UnsupportedProblemError(f"{batch} matrices; at most {_MAX_BATCH} are supported")
    if max(m, n, k, a.leading, b.leading) > MAX_EXTENT:
        raise UnsupportedProblemError("an extent does not fit 32 bits")
    shared_a, shared_b = batch == 1 or a.batch == 1, batch == 1 or b.batch == 1
    return GemmProblem(
        m,
        n,
        k,
        batch,
        a.leading,
        b.leading,
        0 if shared_a else a.rows * a.columns,
        0 if shared_b else b.rows * b.columns,
        a.layout + b.layout,
        dtype,
    )


def _matrices(operand: Operand) -> tuple[int, ...]:
    """The batch axes without leading ones."""
    axes = list(operand.shape[:-2])
    while axes and axes[0] == 1:
        axes.pop(0)
    return tuple(axes)
