"""Airy's function of the first kind, in operators that there are.

By its series near zero, and by quotients of polynomials beyond (S. L. Moshier, Cephes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_NEAR = 2.09
_TERMS = 10
_VANISHED = 103.892
_AT_ZERO = (0.355028053887817239260, 0.258819403792806798405)
"""Its value, and how it falls."""

# From the highest power on: of one over the phase where it falls, of its square in waves.
_FALLS = (
    (
        *(3.46538101525629032477e-01, 1.20075952739645805542e01, 7.62796053615234516538e01),
        *(1.68089224934630576269e02, 1.59756391350164413639e02, 7.05360906840444183113e01),
        *(1.40264691163389668864e01, 9.99999999999999995305e-01),
    ),
    (
        *(5.67594532638770212846e-01, 1.47562562584847203173e01, 8.45138970141474626562e01),
        *(1.77318088145400459522e02, 1.64234692871529701831e02, 7.14778400825575695274e01),
        *(1.40959135607834029598e01, 1.00000000000000000470e00),
    ),
)
_SINES = (
    (
        *(-1.31696323418331795333e-01, -6.26456544431912369773e-01, -6.93158036036933542233e-01),
        *(-2.79779981545119124951e-01, -4.91900132609500318020e-02, -4.06265923594885404393e-03),
        *(-1.59276496239262096340e-04, -2.77649108155232920844e-06, -1.67787698489114633780e-08),
    ),
    (
        1.0,
        *(1.33560420706553243746e01, 3.26825032795224613948e01, 2.67367040941499554804e01),
        *(9.18707402907259625840e00, 1.47529146771666414581e00, 1.15687173795188044134e-01),
        *(4.40291641615211203805e-03, 7.54720348287414296618e-05, 4.51850092970580378464e-07),
    ),
)
_COSINES = (
    (
        *(1.97339932091685679179e-02, 3.91103029615688277255e-01, 1.06579897599595591108e00),
        *(9.39169229816650230044e-01, 3.51465656105547619242e-01, 6.33888919628925490927e-02),
        *(5.85804113048388458567e-03, 2.82851600836737019778e-04, 6.98793669997260967291e-06),
        *(8.11789239554389293311e-08, 3.41551784765923618484e-10),
    ),
    (
        1.0,
        *(9.30892908077441974853e00, 1.98352928718312140417e01, 1.55646628932864612953e01),
        *(5.47686069422975497931e00, 9.54293611618961883998e-01, 8.64580826352392193095e-02),
        *(4.12656523824222607191e-03, 1.01259085116509135510e-04, 1.17166733214413521882e-06),
        4.91834570062930015649e-09,
    ),
)


def airy(x: torch.Tensor) -> torch.Tensor:
    """``Ai``.

    Parameters
    ----------
    x : torch.Tensor
        In float64.

    Returns
    -------
    torch.Tensor
        None of what is infinite, as PyTorch has it.
    """
    size = torch.abs(x)
    far = torch.clamp(size, min=_NEAR)
    root = torch.sqrt(far)
    height = 1 / math.sqrt(math.pi) / torch.sqrt(root)
    phase = 2 / 3 * far * root
    part = 1 / phase
    falls = 0.5 * height * _quotient(part, _FALLS) * torch.exp(-phase)
    falls = torch.where(x > _VANISHED, 0.0, falls)
    square, turned = part * part, phase + 0.25 * math.pi
    sines = 1 + square * _quotient(square, _SINES)
    cosines = part * _quotient(square, _COSINES)
    waves = height * (torch.sin(turned) * sines - torch.cos(turned) * cosines)
    found = torch.where(x < 0, waves, falls)
    found = torch.where(size < _NEAR, _series(torch.clamp(x, -_NEAR, _NEAR)), found)
    return torch.where(torch.isinf(x), math.nan, found)


def _series(x: torch.Tensor) -> torch.Tensor:
    cube = x * x * x
    even = odd = torch.ones_like(x)
    for n in range(3 * _TERMS, 0, -3):
        even = 1 + even * cube / (n * (n - 1))
        odd = 1 + odd * cube / (n * (n + 1))
    return _AT_ZERO[0] * even - _AT_ZERO[1] * x * odd


def _quotient(x: torch.Tensor, factors: Sequence[Sequence[float]]) -> torch.Tensor:
    above, below = (_polynomial(x, each) for each in factors)
    return above / below


def _polynomial(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    found = torch.full_like(x, factors[0])
    for factor in factors[1:]:
        found = found * x + factor
    return found
