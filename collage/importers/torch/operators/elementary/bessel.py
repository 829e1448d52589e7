"""Bessel functions of all four kinds and of orders 0 and 1, in operators that there are.

By the polynomials of M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 9.4 and 9.8: off
by less than 5e-7 of their value, or of 1 where that is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

Function = Callable[[torch.Tensor], torch.Tensor]

# From the highest power on: of (x / 3) ** 2 near zero, and of 3 / x in the wave's size and phase.
_J = (
    (2.100e-4, -3.9444e-3, 4.44479e-2, -0.3163866, 1.2656208, -2.2499997, 1.0),
    (1.109e-5, -3.1761e-4, 4.43319e-3, -3.954289e-2, 0.21093573, -0.56249985, 0.5),
)
_Y = (
    (-2.4846e-4, 4.27916e-3, -4.261214e-2, 0.25300117, -0.74350384, 0.60559366, 0.36746691),
    (2.7873e-3, -4.00976e-2, 0.3123951, -1.3164827, 2.1682709, 0.2212091, -0.6366198),
)
_SIZE = (
    (1.4476e-4, -7.2805e-4, 1.37237e-3, -9.512e-5, -5.52740e-3, -7.7e-7, 0.79788456),
    (-2.0033e-4, 1.13653e-3, -2.49511e-3, 1.7105e-4, 1.659667e-2, 1.56e-6, 0.79788456),
)
_PHASE = (
    (1.3558e-4, -2.9333e-4, -5.4125e-4, 2.62573e-3, -3.954e-5, -4.166397e-2, -0.78539816),
    (-2.9166e-4, 7.9824e-4, 7.4348e-4, -6.37879e-3, 5.650e-5, 0.12499612, -2.35619449),
)
_WAVES = 3.0
"""From there on they are waves."""

# Of (x / 2) ** 2 near zero, of 2 / x beyond.
_K = (
    (7.40e-6, 1.0750e-4, 2.62698e-3, 3.488590e-2, 0.23069756, 0.42278420, -0.57721566),
    (-4.686e-5, -1.10404e-3, -1.919402e-2, -0.18156897, -0.67278579, 0.15443144, 1.0),
)
_K_FAR = (
    (5.3208e-4, -2.51540e-3, 5.87872e-3, -1.062446e-2, 2.189568e-2, -7.832358e-2, 1.25331414),
    (-6.8245e-4, 3.25614e-3, -7.80353e-3, 1.504268e-2, -3.655620e-2, 0.23498619, 1.25331414),
)
_FALLS = 2.0


def _polynomial(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    found = torch.full_like(x, factors[0])
    for factor in factors[1:]:
        found = found * x + factor
    return found


def _waves(order: int, size: torch.Tensor, turned: Function) -> torch.Tensor:
    far = torch.clamp(size, min=_WAVES)
    part = _WAVES / far
    height = _polynomial(part, _SIZE[order]) / torch.sqrt(far)
    # Of no end there is no phase: none, to PyTorch as well.
    return height * turned(far + _polynomial(part, _PHASE[order]))


def _near(order: int, small: torch.Tensor) -> torch.Tensor:
    """The first kind up to where waves begin."""
    found = _polynomial((small / _WAVES) ** 2, _J[order])
    return found * small if order else found


def first_kind(order: int) -> Function:
    """``J`` of order 0 or 1.

    Parameters
    ----------
    order : int
        Which.

    Returns
    -------
    callable
        Of tensors in float64.
    """

    def function(x: torch.Tensor) -> torch.Tensor:
        size = torch.abs(x)
        near = _near(order, torch.clamp(size, max=_WAVES))
        found = torch.where(size < _WAVES, near, _waves(order, size, torch.cos))
        return torch.where(x < 0, -found, found) if order else found

    return function


def second_kind(order: int) -> Function:
    """``Y`` of order 0 or 1; none of what is below zero.

    Parameters
    ----------
    order : int
        Which.

    Returns
    -------
    callable
        Of tensors in float64.
    """

    def function(x: torch.Tensor) -> torch.Tensor:
        # Smaller ones are as good as zero, and their inverse is a number.
        small = torch.clamp(x, min=1e-60, max=_WAVES)
        rest = _polynomial((small / _WAVES) ** 2, _Y[order])
        near = 2 / math.pi * torch.log(small / 2) * _near(order, small)
        near = near + (rest / small if order else rest)
        found = torch.where(x < _WAVES, near, _waves(order, x, torch.sin))
        return _of_positive(x, found, -math.inf)

    return function


def falling(order: int, grows: Function, *, scaled: bool) -> Function:
    """``K`` of order 0 or 1; none of what is below zero.

    Parameters
    ----------
    order : int
        Which.
    grows : callable
        ``I`` of that order.
    scaled : bool
        Whether by ``exp(x)``.

    Returns
    -------
    callable
        Of tensors in float64.
    """

    def function(x: torch.Tensor) -> torch.Tensor:
        small, large = torch.clamp(x, min=1e-60, max=_FALLS), torch.clamp(x, min=_FALLS)
        rest = _polynomial((small / 2) ** 2, _K[order])
        part = torch.log(small / 2) * grows(small)
        near = part + rest / small if order else rest - part
        near = near * torch.exp(small) if scaled else near
        far = _polynomial(2 / large, _K_FAR[order]) / torch.sqrt(large)
        far = far if scaled else far * torch.exp(-large)
        far = torch.where(torch.isinf(x), 0.0, far)
        return _of_positive(x, torch.where(x < _FALLS, near, far), math.inf)

    return function


def _of_positive(x: torch.Tensor, found: torch.Tensor, at_zero: float) -> torch.Tensor:
    found = torch.where(x == 0, at_zero, found)
    return torch.where((x < 0) | torch.isnan(x), math.nan, found)


def spherical(x: torch.Tensor) -> torch.Tensor:
    """The sine over the angle.

    Parameters
    ----------
    x : torch.Tensor
        In float64.

    Returns
    -------
    torch.Tensor
        One at zero, nothing at no end.
    """
    near = 1 - x * x / 6 * (1 - x * x / 20)
    found = torch.sin(x) / torch.where(x == 0, 1.0, x)
    found = torch.where(torch.abs(x) < 1e-2, near, found)
    return torch.where(torch.isinf(x), 0.0, found)
