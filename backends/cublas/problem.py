"""What cublasLt is asked to do for one partition, in its column-major terms.

A row-major matrix is, seen by columns, its transpose. So the row-major product ``C = L R`` is the
column-major product ``Cᵀ = Rᵀ Lᵀ``: the operands change places, nothing is copied, and the bias,
one value per column of C, becomes one value per row of the column-major result, which is what
cublasLt's epilogue adds (cuBLAS manual, ``cublasLtEpilogue_t``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.strided_views import View, matmul_views, row_major_product

_MAX_EXTENT = 2**31 - 1
"""cublasLt's extents and leading dimensions fit 32 bits (``cublasLt.h``)."""

DTYPES = {"float16": 0, "bfloat16": 1, "float32": 2}
"""``collage_cublas_dtype`` of ``cublas_problem.h``."""


@dataclass(frozen=True)
class Epilogue:
    """What follows the product: ``activation(product + bias + residual)``.

    Attributes
    ----------
    activation : str
        Empty, ``relu``, ``gelu_tanh``, or ``gelu`` where its approximation is allowed.
    """

    bias: bool = False
    residual: bool = False
    activation: str = ""

    @property
    def suffix(self) -> str:
        """What it adds to a triple's name, for example ``_bias_relu``."""
        parts = ["bias"] * self.bias + ["residual"] * self.residual
        return "".join(f"_{part}" for part in [*parts, *filter(None, [self.activation])])


@dataclass(frozen=True)
class Problem:
    """One call of ``cublasLtMatmul``: ``D = epilogue(op(A) op(B) + beta C + bias)``.

    All matrices are column-major; op(A) is m × k, op(B) is k × n, C and D are m × n and lie alike.
    The fields are those of ``collage_cublas_problem`` in ``cublas_problem.h``, in its order.
    Strides and leading dimensions count elements; a stride of 0 shares an operand in the batch.
    """

    m: int
    n: int
    k: int
    batch: int
    transpose_a: bool
    transpose_b: bool
    lda: int
    ldb: int
    ldd: int
    stride_a: int
    stride_b: int
    stride_d: int
    dtype: int
    allow_tf32: bool
    bias: bool
    residual: bool
    relu: bool
    gelu: bool
    workspace_limit: int

    def fields(self) -> dict[str, int]:
        """The fields as integers, in the structure's order."""
        return {name: int(value) for name, value in dataclasses.asdict(self).items()}

    def describe(self) -> str:
        """One line for messages."""
        operands = "".join("T" if t else "N" for t in (self.transpose_a, self.transpose_b))
        dtype = next(name for name, code in DTYPES.items() if code == self.dtype)
        return f"{dtype} {operands} m={self.m} n={self.n} k={self.k} batch={self.batch}"


@dataclass(frozen=True)
class Product:
    """A :class:`Problem` and whose operand is whose.

    Attributes
    ----------
    lhs_is_a : bool
        Whether the left operand is cublasLt's A. False as a rule, see the module's first lines;
        True where the result is to be stored transposed.
    """

    problem: Problem
    lhs_is_a: bool


def matrix_views(lhs: View, rhs: View, result: View | None = None) -> tuple[View, View, View]:
    """:func:`~collage.backends.relax.matmul_views` of operands that are no vectors.

    Parameters
    ----------
    lhs, rhs : View
        Of two axes or more; those in front are batch axes.
    result : View, optional
        Of the product; contiguous when it is not given.

    Returns
    -------
    tuple[View, View, View]
        Operands and result, as batches of matrices.

    Raises
    ------
    UnsupportedProblemError
        When an operand is a vector.
    """
    if min(len(lhs.shape), len(rhs.shape)) < 2:
        raise UnsupportedProblemError("a product with a vector")
    return matmul_views(lhs, rhs, result)


def derive(
    lhs: View,
    rhs: View,
    result: View,
    epilogue: Epilogue,
    *,
    dtype: str,
    allow_tf32: bool,
    workspace_limit: int,
) -> Product:
    """Express a batch of products of views for cublasLt.

    Parameters
    ----------
    lhs, rhs, result : View
        With equal batch axes, see :func:`matrix_views`. A residual lies as the result does.
    epilogue : Epilogue
        What is computed behind the product.
    dtype : str
        Of the operands and the result.
    allow_tf32 : bool
        Whether float32 may be multiplied with fewer digits.
    workspace_limit : int
        Bytes.

    Returns
    -------
    Product
        It says which operand is cublasLt's first.

    Raises
    ------
    UnsupportedProblemError
        When neither rows nor columns of a matrix are contiguous, the batch has no single stride, an
        extent is too large, or a bias would run along the wrong axis.
    """
    lhs, rhs, result, by_columns = row_major_product(lhs, rhs, result)
    if by_columns and epilogue.bias:
        raise UnsupportedProblemError("the bias does not run along the result's rows in memory")
    if len(result.shape) > 3:
        raise UnsupportedProblemError(
            f"batch axes {result.shape[:-2]} of differing strides; cublasLt takes one stride"
        )
    transposed_result, ldd = _stored("result", result)
    if transposed_result:
        raise UnsupportedProblemError("the result has neither rows nor columns contiguous")
    # Seen by columns every matrix is transposed: what lies by rows needs no transpose flag.
    transpose_a, lda = _stored("left operand" if by_columns else "right operand", rhs)
    transpose_b, ldb = _stored("right operand" if by_columns else "left operand", lhs)
    batched = len(result.shape) == 3
    problem = Problem(
        m=result.shape[-1],
        n=result.shape[-2],
        k=lhs.shape[-1],
        batch=result.shape[0] if batched else 1,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        lda=lda,
        ldb=ldb,
        ldd=ldd,
        stride_a=rhs.strides[0] if batched else 0,
        stride_b=lhs.strides[0] if batched else 0,
        stride_d=result.strides[0] if batched else 0,
        dtype=DTYPES[dtype],
        allow_tf32=allow_tf32 and dtype == "float32",
        bias=epilogue.bias,
        residual=epilogue.residual,
        relu=epilogue.activation == "relu",
        gelu=epilogue.activation in ("gelu", "gelu_tanh"),
        workspace_limit=workspace_limit,
    )
    largest = max(problem.m, problem.n, problem.k, problem.batch, lda, ldb, ldd)
    if largest > _MAX_EXTENT:
        raise UnsupportedProblemError(f"an extent of {largest} does not fit 32 bits")
    return Product(problem, lhs_is_a=by_columns)


def _stored(what: str, view: View) -> tuple[bool, int]:
    """Whether a matrix lies by columns, and the elements from one contiguous run to the next."""
    rows, columns = view.shape[-2:]
    if columns == 1 and rows > 1 and view.strides[-2] == 1:
        return True, rows  # One contiguous column: long runs load faster than runs of one.
    return view.matrix(what)
