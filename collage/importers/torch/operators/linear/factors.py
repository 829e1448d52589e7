"""Matrices taken apart: QR, LU, singular values and eigenvalues, and what is made of those.

PyTorch's operators in terms of a few that are tensor programs, see :mod:`.by_programs`. Factors are
as LAPACK's are where they are unique; signs of eigenvectors and of singular vectors are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

aten = torch.ops.aten

_TERMS, _SQUARINGS = 14, 16
"""Of the exponential series of a matrix below 1/2, and how often such a one is squared at most."""


@cache
def _own() -> Any:
    """Operators of ours, each a tensor program; all in double precision."""
    define = torch.library.define
    define("collage::symmetric_values", "(Tensor x, float exact) -> (Tensor, Tensor)")
    define("collage::straightened", "(Tensor x, float exact) -> (Tensor, Tensor)")
    define("collage::order_of_rows", "(Tensor exchanged, int rows) -> Tensor")
    define("collage::first_bad_minor", "(Tensor x) -> Tensor")

    def square(x: torch.Tensor, exact: float) -> tuple[torch.Tensor, torch.Tensor]:
        size = x.shape[-1]
        return (
            x.new_empty(x.shape, dtype=torch.float64),
            x.new_empty((*x.shape[:-2], size, size), dtype=torch.float64),
        )

    torch.library.register_fake("collage::symmetric_values", square)
    torch.library.register_fake("collage::straightened", square)
    torch.library.register_fake(
        "collage::order_of_rows",
        lambda x, rows: x.new_empty((*x.shape[:-1], rows), dtype=torch.int64),
    )
    torch.library.register_fake(
        "collage::first_bad_minor", lambda x: x.new_empty(x.shape[:-2], dtype=torch.int32)
    )
    return torch.ops.collage


def _exact(x: torch.Tensor) -> float:
    """How far rotations go: a little further than what is given can tell."""
    return 1e-15 if x.dtype == torch.float64 else 1e-10


def _untouched(x: torch.Tensor) -> bool:
    """Whether PyTorch's own answer stands: known without data, or complex."""
    return not x.numel() or x.is_complex()


def _columns(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return x.gather(-1, order.unsqueeze(-2).expand(x.shape))


def _wider(x: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1]))


def _reflected(
    x: torch.Tensor, complete: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reflections of a matrix, their factors, and the columns that they make."""
    rows, columns = x.shape[-2:]
    count = min(rows, columns)
    a, factors = aten.geqrf(x)
    left = a[..., :count]
    return (
        a,
        factors,
        aten.linalg_householder_product(_wider(left, rows) if complete else left, factors),
    )


def _qr(x: torch.Tensor, mode: str = "reduced") -> Any:
    if _untouched(x):
        return NotImplemented
    rows, columns = x.shape[-2:]
    if mode == "r":
        a, _ = aten.geqrf(x)
        return x.new_empty([0]), a[..., : min(rows, columns), :].triu()
    a, _, q = _reflected(x, complete=mode == "complete")
    return q, a[..., : q.shape[-1], :].triu()


def _turned_by_reflections(
    x: torch.Tensor,
    factors: torch.Tensor,
    other: torch.Tensor,
    left: bool = True,
    transpose: bool = False,
) -> Any:
    if _untouched(x) or not other.numel():
        return NotImplemented
    q = aten.linalg_householder_product(_wider(x, x.shape[-2]), factors)
    q = q.mT if transpose else q
    return q @ other if left else other @ q


def _singular(
    x: torch.Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> Any:
    """Columns at right angles have the singular values for their lengths.

    Reflections make unit columns of them, of those without any length too.
    """
    if _untouched(x):
        return NotImplemented
    rows, columns = x.shape[-2:]
    if rows < columns:
        u, s, vh = _singular(x.mT, full_matrices, compute_uv)
        return (vh.mT, s, u.mT) if compute_uv else (vh, s, u)
    straight, v = _own().straightened(x, _exact(x))
    sizes, order = torch.sort((straight * straight).sum(-2), -1, descending=True)
    s = torch.sqrt(sizes).to(x.dtype)
    if not compute_uv:
        return x.new_empty([0]), s, x.new_empty([0])
    a, _, u = _reflected(_columns(straight, order), complete=full_matrices)
    turned = a.diagonal(dim1=-2, dim2=-1) < 0
    if u.shape[-1] > columns:
        turned = torch.cat([turned, torch.zeros_like(u[..., 0, columns:], dtype=torch.bool)], -1)
    u = torch.where(turned.unsqueeze(-2), -u, u)
    return u.to(x.dtype), s, _columns(v, order).mT.to(x.dtype)


def _symmetric(x: torch.Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    """Only one of the triangles is read."""
    if _untouched(x):
        return NotImplemented
    half = x.tril(-1) if uplo.upper() == "L" else x.triu(1).mT
    diagonal = torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
    found, vectors = _own().symmetric_values(half + half.mT + diagonal, _exact(x))
    values, order = torch.sort(found.diagonal(dim1=-2, dim2=-1), -1)
    if not compute_v:
        return values.to(x.dtype), x.new_empty([0])
    return values.to(x.dtype), _columns(vectors, order).to(x.dtype)


def _pseudo_inverse(
    x: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> Any:
    if _untouched(x):
        return NotImplemented
    usual = torch.finfo(x.dtype).eps * max(x.shape[-2:])
    zero = torch.zeros([], dtype=x.dtype)
    if rtol is None:
        rtol = zero + usual if atol is None else torch.where(atol > 0, 0.0, usual).to(x.dtype)
    atol = zero if atol is None else atol

    def inverted(values: torch.Tensor) -> torch.Tensor:
        sizes = values.abs()
        limit = torch.maximum(
            atol.unsqueeze(-1).to(x.dtype),
            rtol.unsqueeze(-1).to(x.dtype) * sizes.amax(-1, keepdim=True),
        )
        return torch.where(sizes > limit, 1 / values, zero).unsqueeze(-2)

    if hermitian:
        values, vectors = _symmetric(x)
        return (vectors * inverted(values)) @ vectors.mT
    u, s, vh = _singular(x)
    return (vh.mT * inverted(s)) @ u.mT


def _factors(x: torch.Tensor, *, pivot: bool = True) -> Any:
    return aten.linalg_lu_factor_ex(x, pivot=pivot)[:2]


def _unpacked(
    lu: torch.Tensor,
    exchanged: torch.Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Any:
    if _untouched(lu):
        return NotImplemented
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    p, lower, upper = (lu.new_empty([0]) for _ in range(3))
    if unpack_data:
        ones = torch.eye(rows, count, dtype=lu.dtype)
        lower, upper = lu[..., :count].tril(-1) + ones, lu[..., :count, :].triu()
    if unpack_pivots:
        order = _own().order_of_rows(exchanged, rows)
        p = (order.unsqueeze(-2) == torch.arange(rows).unsqueeze(-1)).to(lu.dtype)
    return p, lower, upper


def _lu(x: torch.Tensor, *, pivot: bool = True) -> Any:
    if _untouched(x):
        return NotImplemented
    lu, exchanged = _factors(x, pivot=pivot)
    return _unpacked(lu, exchanged, unpack_pivots=pivot)


def _of_factors(
    lu: torch.Tensor,
    exchanged: torch.Tensor,
    right: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Any:
    if _untouched(lu) or not right.numel():
        return NotImplemented
    p, lower, upper = _unpacked(lu, exchanged)
    if not left:
        return _of_factors(lu, exchanged, right.mT, adjoint=not adjoint).mT
    solve = aten.linalg_solve_triangular
    if adjoint:
        half = solve(upper.mT, right, upper=False)
        return p @ solve(lower.mT, half, upper=True, unitriangular=True)
    half = solve(lower, p.mT @ right, upper=False, unitriangular=True)
    return solve(upper, half, upper=True)


def _of_old_factors(right: torch.Tensor, lu: torch.Tensor, exchanged: torch.Tensor) -> Any:
    return _of_factors(lu, exchanged, right)


def _inverse_and_info(x: torch.Tensor, *, check_errors: bool = False) -> Any:
    if _untouched(x):
        return NotImplemented
    return aten.linalg_inv(x), aten.linalg_lu_factor_ex(x)[2]


def _solution_and_factors(
    x: torch.Tensor, right: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
    if _untouched(x) or not right.numel():
        return NotImplemented
    lu, exchanged, info = aten.linalg_lu_factor_ex(x)
    return aten.linalg_solve(x, right, left=left), lu, exchanged, info


def _cholesky(x: torch.Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    if _untouched(x):
        return NotImplemented
    found = aten.linalg_cholesky(x.mT if upper else x)
    return found.mT if upper else found, _own().first_bad_minor(x)


def _old_cholesky(x: torch.Tensor, upper: bool = False) -> Any:
    return NotImplemented if _untouched(x) else _cholesky(x, upper=upper)[0]


def _exponential(x: torch.Tensor) -> Any:
    """The series of a matrix that was halved until it is small, squared as often."""
    if _untouched(x):
        return NotImplemented
    wide = x.double()
    size = wide.abs().sum(-2).amax(-1)[..., None, None]
    halved = torch.ceil(torch.log2(size.clamp(min=1e-30)) + 1).clamp(0, _SQUARINGS)
    small = wide * torch.exp2(-halved)
    ones = torch.eye(x.shape[-1], dtype=wide.dtype).expand(x.shape)
    found = ones
    for term in range(_TERMS, 0, -1):
        found = ones + small @ found / term
    for step in range(_SQUARINGS):
        found = torch.where(halved > step, found @ found, found)
    return found.to(x.dtype)


def _tensor_inverse(x: torch.Tensor, ind: int = 2) -> Any:
    if _untouched(x):
        return NotImplemented
    left, right = x.shape[:ind], x.shape[ind:]
    size = 1
    for extent in right:
        size *= extent
    return aten.linalg_inv(x.reshape(size, size)).reshape(*right, *left)


def _tensor_solution(x: torch.Tensor, right: torch.Tensor, dims: Any = None) -> Any:
    if _untouched(x):
        return NotImplemented
    if dims is not None:
        moved = [axis % x.dim() for axis in dims]
        x = x.permute([axis for axis in range(x.dim()) if axis not in moved] + moved)
    shape, size = x.shape[right.dim() :], right.numel()
    found = aten.linalg_solve(x.reshape(size, size), right.reshape(size, 1))
    return found.reshape(shape)


def factorizations() -> dict[Any, Callable[..., Any]]:
    """What takes operators on matrices apart, by operator."""
    _own()
    return {
        aten.linalg_qr.default: _qr,
        aten.ormqr.default: _turned_by_reflections,
        aten._linalg_svd.default: _singular,
        aten._linalg_eigh.default: _symmetric,
        aten.linalg_pinv.atol_rtol_tensor: _pseudo_inverse,
        aten.linalg_lu_factor.default: _factors,
        aten.linalg_lu.default: _lu,
        aten.lu_unpack.default: _unpacked,
        aten.linalg_lu_solve.default: _of_factors,
        aten.lu_solve.default: _of_old_factors,
        aten.linalg_inv_ex.default: _inverse_and_info,
        aten._linalg_solve_ex.default: _solution_and_factors,
        aten.linalg_cholesky_ex.default: _cholesky,
        aten.cholesky.default: _old_cholesky,
        aten.linalg_matrix_exp.default: _exponential,
        aten.linalg_tensorinv.default: _tensor_inverse,
        aten.linalg_tensorsolve.default: _tensor_solution,
    }
