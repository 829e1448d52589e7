"""Hermite's, Laguerre's and Legendre's polynomials of a degree that is a number.

Each follows from the two before it; no function has them all, as cosines have Chebyshev's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from collage.importers.torch.operators.errors import RefusedError

_MOST = 64
"""Degrees are written out one by one."""

Step = Callable[[int, Any, Any, Any], Any]
"""The next one, of its degree less one, of the place, and of the two before it, the later first."""


def _hermite(k: int, x: Any, last: Any, before: Any) -> Any:
    return 2 * (x * last - k * before)


def _probabilists(k: int, x: Any, last: Any, before: Any) -> Any:
    return x * last - k * before


def _laguerre(k: int, x: Any, last: Any, before: Any) -> Any:
    return ((2 * k + 1 - x) * last - k * before) / (k + 1)


def _legendre(k: int, x: Any, last: Any, before: Any) -> Any:
    return ((2 * k + 1) * x * last - k * before) / (k + 1)


STEPS: dict[str, Step] = {
    "hermite_polynomial_h": _hermite,
    "hermite_polynomial_he": _probabilists,
    "laguerre_polynomial_l": _laguerre,
    "legendre_polynomial_p": _legendre,
}


def of_degree(step: Step) -> Callable[[torch.Tensor, float], torch.Tensor]:
    """A polynomial by the step from one degree to the next.

    Parameters
    ----------
    step : callable
        One of :data:`STEPS`.

    Returns
    -------
    callable
        Of a place in float64 and of a degree; refuses one that is more than is written out.
    """

    def function(x: torch.Tensor, n: float) -> torch.Tensor:
        if not math.trunc(n) <= _MOST:
            raise RefusedError(f"a polynomial of a degree above {_MOST}")
        before, last = torch.zeros_like(x), torch.ones_like(x)
        if n <= -1:
            return before
        for k in range(math.trunc(n)):
            before, last = last, step(k, x, last, before)
        return last

    return function
