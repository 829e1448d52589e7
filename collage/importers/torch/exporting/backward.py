"""Derivatives of operators that PyTorch keeps whole, in terms of others: of networks that
differentiate as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import _disable_current_modes

from collage.importers.torch.exporting.along_axes import derivatives_along_axes

_aten = torch.ops.aten


_NEAREST = [
    getattr(_aten, f"{name}{rank}d")
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
]


def derivatives() -> dict[Any, Callable[..., Any]]:
    """What takes them apart, by operator."""
    return {
        **derivatives_along_axes(),
        **get_decompositions([_aten.native_batch_norm, _aten.native_batch_norm_backward]),
        # Matrices of which there is no inverse give what they give.
        _aten._linalg_check_errors.default: lambda *_, **__: None,
        _aten._linalg_det.default: _determinant,
        _aten._linalg_slogdet.default: _log_determinant,
        _aten.adaptive_max_pool2d_backward.default: partial(_of_maxima, 2),
        _aten.adaptive_max_pool3d_backward.default: partial(_of_maxima, 3),
        **{one.default: partial(_nearest, one) for one in _NEAREST},
        _aten._cdist_backward.default: _of_distances,
        _aten.convolution_backward.default: _of_convolution,
        _aten.mish_backward.default: _of_mish,
        _aten.silu_backward.default: _of_silu,
    }


def _determinant(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """With the factors that derivatives are made of: of the transposed matrix, as in PyTorch."""
    turned = x.is_contiguous() and not x.is_complex()
    lu, exchanged, _ = _aten.linalg_lu_factor_ex(x.mT if turned else x)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    stays = exchanged == torch.arange(1, x.shape[-1] + 1, dtype=exchanged.dtype)
    sign = torch.where(stays, 1.0, -1.0).to(x.dtype).prod(-1)
    return diagonal.prod(-1) * sign, lu, exchanged


def _log_determinant(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    found, lu, exchanged = _determinant(x)
    logarithm = lu.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
    return torch.sign(found), logarithm, lu, exchanged


def _of_maxima(
    rank: int, given: torch.Tensor, x: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    flat = torch.zeros_like(x).flatten(-rank)
    return flat.scatter_add(-1, places.flatten(-rank), given.flatten(-rank)).reshape(x.shape)


def _nearest(
    operator: Any, x: torch.Tensor, size: Sequence[int], *scales: float | None
) -> torch.Tensor:
    """Which elements are taken along each axis, PyTorch itself says."""
    rank = len(size)
    for axis, (before, after) in enumerate(zip(x.shape[2:], size, strict=True)):
        with _disable_current_modes():
            one = [after if place == axis else 1 for place in range(rank)]
            alone = [scale if place == axis else None for place, scale in enumerate(scales)]
            shape = [before if place == axis else 1 for place in range(rank)]
            numbers = torch.arange(float(before)).reshape(1, 1, *shape)
            places = operator.default(numbers, one, *alone).flatten().long()
        x = x.index_select(2 + axis, places)
    return x


def _of_silu(given: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    share = torch.sigmoid(x)
    return given * (share * (1 + x * (1 - share)))


def _of_mish(given: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    bent = torch.tanh(torch.nn.functional.softplus(x))
    return given * (bent + x * torch.sigmoid(x) * (1 - bent * bent))


def _of_distances(
    given: torch.Tensor, x: torch.Tensor, y: torch.Tensor, power: float, distances: torch.Tensor
) -> Any:
    if power not in (1.0, 2.0):
        return NotImplemented
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    if power == 1.0:
        return (given.unsqueeze(-1) * torch.sign(apart)).sum(-2)
    # Where two are at the same place PyTorch's derivative is 0, too.
    share = torch.where(distances == 0, 0.0, given / torch.where(distances == 0, 1.0, distances))
    return (share.unsqueeze(-1) * apart).sum(-2)


def _of_convolution(
    given: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    _biases: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> Any:
    """That of the input: the convolution the other way."""
    if list(wanted) != [True, False, False]:
        return NotImplemented
    rank = x.dim() - 2
    stride, padding, dilation = (_each(n, rank) for n in (stride, padding, dilation))
    beyond = [0] * rank
    if not transposed:
        # What the strides left out at the end.
        beyond = [
            x.shape[2 + i]
            - (
                (given.shape[2 + i] - 1) * stride[i]
                - 2 * padding[i]
                + dilation[i] * (weight.shape[2 + i] - 1)
                + 1
            )
            for i in range(rank)
        ]
    found = _aten.convolution.default(
        given, weight, None, stride, padding, dilation, not transposed, beyond, groups
    )
    return found, None, None


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)
