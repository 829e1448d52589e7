"""Derivatives of operators that PyTorch keeps whole, in terms of others: of networks that
differentiate as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten


def derivatives() -> dict[Any, Callable[..., Any]]:
    """What takes them apart, by operator."""
    return {
        _aten._cdist_backward.default: _of_distances,
        _aten.convolution_backward.default: _of_convolution,
        _aten.mish_backward.default: _of_mish,
        _aten.silu_backward.default: _of_silu,
    }


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
