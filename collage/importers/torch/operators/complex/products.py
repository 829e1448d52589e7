"""Products and systems of complex matrices, as real ones of twice the size.

With ``a + ib`` written as ``[[a, b], [-b, a]]``, products, inverses and solutions are those of the
real matrices. A weight's matrix is put together once, when constants are folded.
"""

from __future__ import annotations

from typing import Any

import torch

from collage.importers.torch.operators.complex.functions import Function, parts

aten = torch.ops.aten


def _wide(z: torch.Tensor) -> torch.Tensor:
    """The real matrix of a complex one, for products from its left."""
    re, im = parts(z)
    return torch.cat([torch.cat([re, im], -1), torch.cat([-im, re], -1)], -2)


def _side(z: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts(z), -1)


def _halves(x: torch.Tensor) -> torch.Tensor:
    count = x.shape[-1] // 2
    return torch.complex(x[..., :count], x[..., count:])


def _product(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Of two matrices, or of as many pairs of them."""
    if not one.is_complex():
        return _halves(one @ _side(two))
    if not two.is_complex():
        return torch.complex(one.real @ two, one.imag @ two)
    return _halves(_side(one) @ _wide(two))


def _with_sum(
    x: torch.Tensor, one: torch.Tensor, two: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    found = _product(one, two)
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    return found + (x if beta == 1 else x * beta)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    if x.dim() == 1:
        return _linear(x.unsqueeze(0), weight, bias).squeeze(0)
    found = _product(x, weight.mT)
    return found if bias is None else found + bias


def _of_rows(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return _product(one.unsqueeze(0), two.unsqueeze(1)).reshape([])


def _of_rows_conjugated(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    return _of_rows(one.conj(), two)


def _by_row(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return _product(x, row.unsqueeze(1)).squeeze(1)


def _inverse(x: torch.Tensor) -> torch.Tensor:
    return _halves(aten.linalg_inv(_wide(x))[..., : x.shape[-1], :])


def _inverse_and_info(x: torch.Tensor, *, check_errors: bool = False) -> Any:
    found, info = aten.linalg_inv_ex(_wide(x))
    return _halves(found[..., : x.shape[-1], :]), info


def _solution(x: torch.Tensor, right: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    """From the right, rows of the solution stand beside each other as those of the right side do;
    from the left both are transposed."""
    if x.dim() == right.dim() + 1 and right.shape == x.shape[:-1]:
        return _solution(x, right.unsqueeze(-1), left=left).squeeze(-1)
    if left:
        return _solution(x.mT, right.mT, left=False).mT
    return _halves(aten.linalg_solve(_wide(x), _side(right), left=False))


def _solution_and_factors(
    x: torch.Tensor, right: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
    """The factors, which nobody is given, are none."""
    found = _solution(x, right, left=left)
    info = torch.zeros(x.shape[:-2], dtype=torch.int32)
    return found, x, torch.zeros(x.shape[:-1], dtype=torch.int32), info


def complex_products() -> dict[Any, Function]:
    """What takes operators on complex matrices apart, by operator.

    Examples
    --------
    >>> x = torch.tensor([[1j]])
    >>> complex_products()[aten.mm.default](x, x)
    tensor([[-1.+0.j]])
    """
    return {
        aten.mm.default: _product,
        aten.bmm.default: _product,
        aten.addmm.default: _with_sum,
        aten.baddbmm.default: _with_sum,
        aten.linear.default: _linear,
        aten.dot.default: _of_rows,
        aten.vdot.default: _of_rows_conjugated,
        aten.mv.default: _by_row,
        aten.linalg_inv.default: _inverse,
        aten.linalg_inv_ex.default: _inverse_and_info,
        aten.linalg_solve.default: _solution,
        aten._linalg_solve_ex.default: _solution_and_factors,
    }
