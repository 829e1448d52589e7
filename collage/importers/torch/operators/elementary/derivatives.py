"""Derivatives of the digamma function: Euler and Maclaurin's sum, reflected below a half."""

from __future__ import annotations

import math

import torch

from collage.importers.torch.operators.errors import RefusedError

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
_HIGHEST = 20
"""Beyond, the sum wants more terms, and hardly anything is a number in float32."""


def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    """The ``n``-th derivative, from the second on.

    Parameters
    ----------
    n : int
        2 or more.
    x : torch.Tensor
        In float64.

    Returns
    -------
    torch.Tensor
        Infinite where there is none, with the sign that PyTorch gives it.

    Raises
    ------
    RefusedError
        For a very high derivative.
    """
    if n > _HIGHEST:
        raise RefusedError(f"a polygamma function of order {n}; up to {_HIGHEST} are known")
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    shift = 8 + n
    total = torch.zeros_like(y)
    for step in range(shift):
        total = total + _power(1 / (y + step), n + 1)
    z = y + shift
    inverse = 1 / z
    square, last = inverse * inverse, _power(inverse, n)
    series = (1 / n) * last + 0.5 * last * inverse
    for place, number in enumerate(_BERNOULLI, 1):
        share = number * math.factorial(2 * place + n - 1) / math.factorial(2 * place)
        last = last * square
        series = series + share / math.factorial(n) * last
    sign = 1 if n % 2 else -1
    above = sign * math.factorial(n) * (total + series)
    found = torch.where(reflected, -sign * above - math.pi * _cotangents(n, x), above)
    pole = (x <= 0) & (x == torch.floor(x))
    found = torch.where(pole, sign * math.inf, found)
    return torch.where(torch.isinf(x), math.nan, found)


def _power(x: torch.Tensor, n: int) -> torch.Tensor:
    """By squares: TVM calls a library for each power."""
    half = _power(x * x, n // 2) if n > 1 else None
    if half is None:
        return x
    return half * x if n % 2 else half


def _cotangents(n: int, x: torch.Tensor) -> torch.Tensor:
    """The ``n``-th derivative of ``cot(pi x)``, a polynomial of it."""
    factors = [0.0, 1.0]
    for _ in range(n):
        slope = [k * factor for k, factor in enumerate(factors)][1:]
        new = [0.0] * (len(slope) + 2)
        for k, factor in enumerate(slope):
            new[k] -= math.pi * factor
            new[k + 2] -= math.pi * factor
        factors = new
    part = math.pi * (x - torch.round(x))
    cotangent = torch.cos(part) / torch.sin(torch.where(part == 0, 1.0, part))
    found = torch.full_like(x, factors[-1])
    for factor in reversed(factors[:-1]):
        found = found * cotangent + factor
    return found
