"""Chebyshev's polynomials of all four kinds, of any degree: sines and cosines of multiple angles.

Beyond one the angles are hyperbolic; below zero the first two kinds change their signs, and the
others their places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Kind = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of the degree and of what is not below zero."""


def polynomial(kind: str, *, shifted: bool) -> Callable[[Any, Any], torch.Tensor]:
    """``T``, ``U``, ``V`` or ``W``.

    Parameters
    ----------
    kind : str
        By its letter, in lower case.
    shifted : bool
        Whether from 0 to 1, not from -1.

    Returns
    -------
    callable
        Of where it is, and of its degree; one of them a tensor, in float64.
    """
    above, below = {"t": (_t, _t), "u": (_u, _u), "v": (_v, _w), "w": (_w, _v)}[kind]

    def function(x: Any, n: Any) -> torch.Tensor:
        x, n = torch.broadcast_tensors(*(_tensor(one, other) for one, other in ((x, n), (n, x))))
        n = torch.trunc(n)
        x = 2 * x - 1 if shifted else x
        degree, size = torch.clamp(n, min=0), torch.abs(x)
        sign = 1 - 2 * torch.abs(degree - 2 * torch.floor(0.5 * degree))
        found = torch.where(x < 0, sign * below(degree, size), above(degree, size))
        found = torch.where(n == 0, 1.0, found)
        return torch.where(n < 0, 0.0, found)

    return function


def _tensor(one: Any, other: Any) -> torch.Tensor:
    return one if isinstance(one, torch.Tensor) else torch.full_like(other, one)


def _angles(size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Up to one, and beyond; neither is nothing."""
    circular = torch.acos(torch.clamp(size, max=1.0))
    far = torch.clamp(size, min=1.0)
    hyperbolic = torch.log(far + torch.sqrt(far * far - 1))
    return torch.where(size < 1, circular, 1.0), torch.where(size > 1, hyperbolic, 1.0)


def _at(
    size: torch.Tensor, near: torch.Tensor, far: torch.Tensor, one: torch.Tensor
) -> torch.Tensor:
    return torch.where(size < 1, near, torch.where(size == 1, one, far))


def _t(n: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    near, far = _angles(size)
    return _at(size, torch.cos(n * near), torch.cosh(n * far), torch.ones_like(n))


def _u(n: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    near, far = _angles(size)
    inside = torch.sin((n + 1) * near) / torch.sin(near)
    return _at(size, inside, torch.sinh((n + 1) * far) / torch.sinh(far), n + 1)


def _v(n: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    near, far = _angles(size)
    inside = torch.cos((n + 0.5) * near) / torch.cos(0.5 * near)
    outside = torch.cosh((n + 0.5) * far) / torch.cosh(0.5 * far)
    return _at(size, inside, outside, torch.ones_like(n))


def _w(n: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    near, far = _angles(size)
    inside = torch.sin((n + 0.5) * near) / torch.sin(0.5 * near)
    outside = torch.sinh((n + 0.5) * far) / torch.sinh(0.5 * far)
    return _at(size, inside, outside, 2 * n + 1)
