"""Special functions, and the trigonometric and hyperbolic ones that few networks have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, special

from benchmarks.operators.case import BetweenIntegers, OperatorCase, call

_SHAPE = (128, 3072)

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erfc": torch.erfc,
    "erfinv": lambda x: torch.erfinv(x * 0.15),
    "erfcx": special.erfcx,
    "trigamma": lambda x: torch.polygamma(1, x.abs() + 0.1),
    "tetragamma": lambda x: torch.polygamma(2, x.abs() + 0.1),
    "zeta": lambda x: special.zeta(x.abs() + 1.5, x.abs() + 0.5),
    "ndtri": lambda x: special.ndtri(x * 0.09 + 0.5),
    "log_ndtr": special.log_ndtr,
    "logit": lambda x: torch.logit(x * 0.09 + 0.5),
    "xlogy": lambda x: torch.xlogy(x, x * x),
    "entropy": lambda x: special.entr(x * x),
    "sinc": torch.sinc,
    "i0": torch.i0,
    "i0e": special.i0e,
    "i1": special.i1,
    "i1e": special.i1e,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tan": torch.tan,
    "asin": lambda x: torch.asin(x * 0.15),
    "acos": lambda x: torch.acos(x * 0.15),
    "atan": torch.atan,
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(x * x + 1.0),
    "atanh": lambda x: torch.atanh(x * 0.15),
    "log1p": lambda x: torch.log1p(x * x),
    "expm1": torch.expm1,
    "log2": lambda x: torch.log2(x * x),
    "log10": lambda x: torch.log10(x * x),
    "exp2": torch.exp2,
    "cube root": lambda x: torch.pow(x * x, 1.0 / 3.0),
    "log sigmoid": torch.nn.functional.logsigmoid,
    "frac": torch.frac,
    "trunc": torch.trunc,
    "fmod": lambda x: torch.fmod(x, 0.3),
    "remainder": lambda x: torch.remainder(x, 0.3),
}
_BESSEL = (
    *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0"),
    *("modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai"),
)


_WITH_POLES = {"lgamma": torch.lgamma, "digamma": torch.digamma}


def cases() -> Iterator[OperatorCase]:
    for name, function in _WITH_POLES.items():
        yield call("special", f"{name} 128x3072", function, BetweenIntegers(_SHAPE))
    for name, function in _FUNCTIONS.items():
        yield call("special", f"{name} 128x3072", function, _SHAPE)
    for name in _BESSEL:
        function = functools.partial(_positive, function=getattr(special, name))
        yield call("special", f"{name} 128x3072", function, _SHAPE)
    for name in ("gammainc", "gammaincc"):
        function = functools.partial(_incomplete, function=getattr(special, name))
        yield call("special", f"{name} 128x512", function, (128, 512), (128, 512))
    for name, binary in (
        ("atan2", torch.atan2),
        ("hypot", torch.hypot),
        ("logaddexp", torch.logaddexp),
    ):
        yield call("special", f"{name} 128x3072", binary, _SHAPE, _SHAPE)
    yield call("special", "power 128x3072", lambda x, y: torch.pow(x * x, y), _SHAPE, _SHAPE)


def _positive(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return function(x * x + 0.1)


def _incomplete(a: Tensor, x: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return function(a * a + 0.5, x * x)
