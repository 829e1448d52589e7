"""Matrices taken apart, beside PyTorch on fresh random inputs: of any shape, rank and type.

Vectors whose signs nobody fixes are compared by the products that they make.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.cost.models import DeviceSpec, RooflineCostModel
from tests.collage_tests.importers.torch.torch_functions import (
    Cases,
    Function,
    imported,
    require_agreement,
    rows,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
linalg = torch.linalg


def low_rank(*shape: int) -> Any:
    """Matrices of rank 2."""
    return rows(*shape[:-1], 2) @ rows(*shape[:-2], 2, shape[-1])


def symmetric(*shape: int) -> Any:
    x = rows(*shape)
    return x + x.mT


def regular(*shape: int) -> Any:
    return rows(*shape) + 3 * shape[-1] ** 0.5 * torch.eye(shape[-1]).roll(1, 0)


def dominant(*shape: int) -> Any:
    return rows(*shape) + 3 * shape[-1] ** 0.5 * torch.eye(shape[-1])


def from_singular(full: bool) -> Any:
    def function(x: Any) -> tuple[Any, ...]:
        u, s, vh = linalg.svd(x, full_matrices=full)
        count = s.shape[-1]
        product = (u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :]
        return s, product, u.mT @ u, vh @ vh.mT

    return function


def from_symmetric(triangle: str) -> Any:
    def function(x: Any) -> tuple[Any, ...]:
        values, vectors = linalg.eigh(x, UPLO=triangle)
        return values, (vectors * values.unsqueeze(-2)) @ vectors.mT, vectors.mT @ vectors

    return function


CASES: Cases = {
    **{
        f"QR, {mode}, {shape}": (
            lambda x, mode=mode: linalg.qr(x, mode)[mode == "r" :],
            lambda shape=shape: (rows(*shape),),
        )
        for mode in ("reduced", "complete", "r")
        for shape in ((2, 3, 5, 4), (4, 6), (3, 1))
    },
    "reflections": (torch.geqrf, lambda: (rows(2, 5, 3),)),
    "fewer reflections than columns": (
        linalg.householder_product,
        lambda: (rows(2, 5, 3), rows(2, 2)),
    ),
    "turned by reflections": (
        lambda x, f, y: (torch.ormqr(x, f, y), torch.ormqr(x, f, y.mT, left=False, transpose=True)),
        lambda: (*torch.geqrf(rows(5, 3)), rows(5, 2)),
    ),
    **{
        f"LU, {shape}": (linalg.lu, lambda shape=shape: (rows(*shape),))
        for shape in ((2, 5, 4), (4, 6))
    },
    "LU in one matrix": (linalg.lu_factor, lambda: (rows(2, 20, 20),)),
    "systems of LU": (
        lambda lu, p, b: tuple(
            linalg.lu_solve(lu, p.int(), b if left else b.mT, left=left, adjoint=adjoint)
            for left in (True, False)
            for adjoint in (True, False)
        ),
        lambda: (*linalg.lu_factor(regular(2, 5, 5)), rows(2, 5, 3)),
    ),
    "large inverses": (linalg.inv, lambda: (regular(2, 30, 30),)),
    "a large system": (linalg.solve, lambda: (regular(20, 20), rows(20))),
    "systems from the right": (
        lambda x, b: linalg.solve(x, b, left=False),
        lambda: (regular(3, 4, 4), rows(3, 2, 4)),
    ),
    "systems spread": (linalg.solve, lambda: (regular(3, 1, 4, 4), rows(2, 4, 5))),
    "a vector for each system": (linalg.solve, lambda: (regular(3, 4, 4), rows(3, 4))),
    "whether there is an inverse": (
        lambda x: linalg.inv_ex(x * torch.tensor([0.0, 1.0])[:, None, None])[1],
        lambda: (regular(2, 5, 5),),
    ),
    "large determinants": (lambda x: linalg.slogdet(x), lambda: (regular(2, 19, 19),)),
    "large Cholesky factors": (
        lambda x: tuple(
            linalg.cholesky(x @ x.mT + 9 * torch.eye(20), upper=up) for up in (False, True)
        ),
        lambda: (rows(2, 20, 20),),
    ),
    "whether there is a Cholesky factor": (
        lambda x: linalg.cholesky_ex(x)[1],
        lambda: (symmetric(5, 4, 4),),
    ),
    "systems of Cholesky factors": (
        lambda b, x: (
            torch.cholesky_solve(b, x.tril()),
            torch.cholesky_inverse(x.triu(), upper=True),
        ),
        lambda: (rows(5, 3), dominant(5, 5)),
    ),
    "triangular systems": (
        lambda x, b: tuple(
            linalg.solve_triangular(
                x, b if left else b.mT, upper=upper, left=left, unitriangular=unit
            )
            for upper in (True, False)
            for left in (True, False)
            for unit in (True, False)
        ),
        lambda: (dominant(4, 4) / 6, rows(2, 4, 3)),
    ),
    "tensors inverted": (
        linalg.tensorinv,
        # As a matrix: random ones of this size are often nearly singular.
        lambda: (dominant(24, 24).reshape(4, 6, 8, 3),),
    ),
    "systems of tensors": (linalg.tensorsolve, lambda: (rows(4, 3, 12), rows(4, 3))),
    **{
        f"singular values, {'all' if full else 'some'} vectors, {draw.__name__} {shape}": (
            from_singular(full),
            lambda draw=draw, shape=shape: (draw(*shape),),
        )
        for full in (True, False)
        for draw, shape in ((rows, (2, 4, 7)), (low_rank, (2, 7, 4)), (rows, (1, 3)))
    },
    "singular values of nothing": (from_singular(False), lambda: (torch.zeros(3, 3),)),
    "singular values alone": (linalg.svdvals, lambda: (rows(2, 5, 7),)),
    "pseudo-inverses": (
        lambda x: (linalg.pinv(x), linalg.pinv(x, rtol=0.3), linalg.pinv(x @ x.mT, hermitian=True)),
        lambda: (rows(2, 3, 5),),
    ),
    "pseudo-inverse of low rank": (linalg.pinv, lambda: (low_rank(6, 4),)),
    "ranks": (linalg.matrix_rank, lambda: (low_rank(2, 6, 5),)),
    "norms by singular values": (
        lambda x: (linalg.cond(x), *(linalg.matrix_norm(x, p) for p in (2, -2, "nuc"))),
        lambda: (rows(2, 4, 4),),
    ),
    **{
        f"eigenvalues, {triangle}, {draw.__name__}": (
            from_symmetric(triangle),
            lambda draw=draw: (draw(2, 6, 6),),
        )
        for triangle in "LU"
        for draw in (symmetric, rows)
    },
    "eigenvalues that are equal": (from_symmetric("L"), lambda: (torch.eye(4),)),
    "exponentials": (
        lambda x: (linalg.matrix_exp(x), linalg.matrix_exp(x - x.mT), linalg.matrix_exp(x * 1e-4)),
        lambda: (rows(2, 4, 4),),
    ),
    **{
        f"without elements: {name}": (function, lambda shape=shape: (rows(*shape),))
        for name, function, shape in (
            ("QR", lambda x: linalg.qr(x, "complete"), (3, 0)),
            ("singular values", linalg.svd, (0, 3)),
            ("no matrices", linalg.eigh, (0, 3, 3)),
            ("inverse", linalg.inv_ex, (2, 0, 0)),
        )
    },
}


@pytest.mark.parametrize("case", CASES)
def test_factors_agree_with_torch(case: str) -> None:
    require_agreement(*CASES[case])


@pytest.mark.parametrize("function", [from_singular(False), from_symmetric("L")])
def test_double_precision_is_kept(function: Any) -> None:
    x = symmetric(5, 5).double()
    for mine, theirs in zip(imported(function, x), function(x), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-12, atol=1e-12)


def test_parts_without_elements_can_be_saved(tmp_path: Path) -> None:
    """They were folded into constants that the loader refused: ``Invalid DLTensor file format``."""
    model = RooflineCostModel(DeviceSpec("any", 1e11, 1e11, 1e11, bytes_per_sec=1e10))
    module = Function(lambda x: (*linalg.inv_ex(x), torch.linspace(0, 1, 0), x + 1)).eval()
    result = collage.optimize(
        *(module, ["llvm"]),
        **{"example_inputs": (rows(2, 0, 0),), "strategy": "single:tvm", "cost_model": model},
    )
    found = collage.load(result.export(tmp_path))(np.zeros((2, 0, 0), "float32"))
    assert [x.shape for x in found] == [(2, 0, 0), (2,), (0,), (2, 0, 0)]
    assert not found[1].any()
