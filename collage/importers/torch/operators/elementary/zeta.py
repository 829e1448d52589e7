"""Hurwitz' zeta function, in operators that there are: Euler and Maclaurin's sum."""

from __future__ import annotations

import math
from typing import Any

import torch

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_STEPS = 10
_NOTHING = 1e3
"""Of this power and more, all that is left out after the steps is nothing."""


def zeta(x: Any, q: Any) -> torch.Tensor:
    """The sum of ``1 / (q + n) ** x``.

    Parameters
    ----------
    x, q : torch.Tensor or float
        The power, and where the sum begins; one of them a tensor, in float64.

    Returns
    -------
    torch.Tensor
        None of powers below 1, infinite at poles.
    """
    x, q = torch.broadcast_tensors(*(_tensor(one, other) for one, other in ((x, q), (q, x))))
    whole = q == torch.floor(q)
    above = _of_positive(x, torch.where(q > 0, q, q - torch.floor(q) + whole.to(q.dtype)))
    # What is below zero is as far from it as what is above, step by step; the power is whole.
    size = torch.where(q < 0, -q, 1.0)
    last = size - torch.floor(size)
    last = torch.where(last == 0, 1.0, last)
    sign = 1 - 2 * torch.abs(x - 2 * torch.floor(0.5 * x))
    below = sign * (_of_positive(x, last) - _of_positive(x, size + 1))
    found = torch.where(q < 0, above + below, above)
    found = torch.where((q <= 0) & (x != torch.floor(x)), math.nan, found)
    found = torch.where((q <= 0) & whole, math.inf, found)
    found = torch.where(x > 1, found, math.nan)
    return torch.where(x == 1, math.inf, found)


def _tensor(one: Any, other: Any) -> torch.Tensor:
    return one if isinstance(one, torch.Tensor) else torch.full_like(other, one)


def _of_positive(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(q)
    for step in range(_STEPS):
        total = total + torch.pow(q + step, -x)
    z = q + _STEPS
    near = torch.clamp(x, max=_NOTHING)
    last = torch.pow(z, -near)
    inverse = 1 / z
    square, share = inverse * inverse, last * near * inverse
    total = total + last * z / (near - 1) + 0.5 * last
    for place, number in enumerate(_BERNOULLI, 1):
        total = total + number / math.factorial(2 * place) * share
        share = share * (near + (2 * place - 1)) * (near + 2 * place) * square
    return total
