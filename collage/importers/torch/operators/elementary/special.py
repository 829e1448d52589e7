"""Special functions of exported programs in operators that there are, computed in float64.

Each is given to PyTorch as the operator's decomposition. None is off by more than some 5e-7 of its
value, or of 1 where that is larger: what float32 asks for, so most are refused in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from collage.importers.torch.operators.elementary import bessel
from collage.importers.torch.operators.elementary.airy import airy
from collage.importers.torch.operators.elementary.chebyshev import polynomial
from collage.importers.torch.operators.elementary.derivatives import polygamma
from collage.importers.torch.operators.elementary.orthogonal import STEPS, of_degree
from collage.importers.torch.operators.elementary.zeta import zeta
from collage.importers.torch.operators.errors import RefusedError

Function = Callable[[torch.Tensor], torch.Tensor]

# The gamma function but for its power and exponential (Boost's lanczos13m53).
GAMMA_SHIFT = 6.024680040776729583740234375
GAMMA = (
    (
        *(2.506628274631000270, 210.8242777515793458, 8071.672002365816210),
        *(186056.2653952234950, 2876370.628935372441, 31426415.58540019438),
        *(248874557.8620541565, 1439720407.311721674, 6039542586.352028005),
        *(17921034426.03720970, 35711959237.35566805, 42919803642.64909877),
        23531376880.41075969,
    ),
    (
        *(1.0, 66.0, 1925.0, 32670.0, 357423.0, 2637558.0, 13339535.0, 45995730.0),
        *(105258076.0, 150917976.0, 120543840.0, 39916800.0, 0.0),
    ),
)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
"""Of the even powers of 1 / x, from the second on: Bernoulli's numbers over their places."""

_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
_SINE = tuple(
    (-1) ** n * math.pi ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(8, -1, -1)
)
_SHIFT = 8
"""Steps by which an argument is made large enough for its asymptotic series."""

_TAIL = 0.02425
# Quotients of polynomials for the normal distribution's quantiles (P. J. Acklam).
_MIDDLE = (
    (
        *(-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02),
        *(1.383577518672690e02, -3.066479806614716e01, 2.506628277459239e00),
    ),
    (
        *(-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02),
        *(6.680131188771972e01, -1.328068155288572e01, 1.0),
    ),
)
_END = (
    (
        *(-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00),
        *(-2.549732539343734e00, 4.374664141464968e00, 2.938163982698783e00),
    ),
    (
        *(7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00),
        *(3.754408661907416e00, 1.0),
    ),
)
# exp(x ** 2) times the complement of the error function, times x + 3: a polynomial in
# (x - 3) / (x + 3), least squares of the relative error at Chebyshev nodes, exact to 5e-10.
_COMPLEMENT_AT = 3.0
_COMPLEMENT = (
    *(-1.120184612334351e-05, 1.98833597832678e-05, 0.0001013903465861297),
    *(-0.0002656019875226634, -0.0005455456563762119, 0.003028034475321503),
    *(-0.001212864033623772, -0.0268256322565046, 0.1195277400546583, -0.3104674436088111),
    *(0.590228365270022, -0.8833944473963586, 1.074006906924385),
)
_VANISHED = 30.0
"""Where the complement of the error function is less than any number."""

# Bessel functions (M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 9.8.1 to 9.8.4).
_I0 = (
    (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0),
    (
        *(0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565),
        *(0.00225319, 0.01328592, 0.39894228),
    ),
)
_I1 = (
    (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5),
    (
        *(-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801),
        *(-0.00362018, -0.03988024, 0.39894228),
    ),
)


def _polynomial(x: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
    """From the highest power on."""
    found = torch.full_like(x, factors[0])
    for factor in factors[1:]:
        found = found * x + factor
    return found


def _computed_wide(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """In float64, given in the type that PyTorch gives.

    Of half precision in float32, where no digits are lost on the way.
    """

    @functools.wraps(function)
    def apart(*args: Any) -> torch.Tensor:
        place = next(i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor))
        x = args[place]
        kind = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        if kind == torch.float64 and function not in _EXACT:
            raise RefusedError("a special function that is known here in float32 alone")
        half = kind in (torch.float16, torch.bfloat16) and function in _STEADY
        wide = torch.float32 if half else torch.float64
        given = [arg.to(wide) if isinstance(arg, torch.Tensor) else arg for arg in args]
        return function(*given).to(kind)

    return apart


def _fraction(x: torch.Tensor) -> torch.Tensor:
    """``x`` less the nearest whole number: exact."""
    return x - torch.round(x)


def _sine_of_turns(f: torch.Tensor) -> torch.Tensor:
    """``sin(pi f)`` of what is no farther from zero than a half, to 13 digits."""
    return f * _polynomial(f * f, _SINE)


def _log_gamma(x: torch.Tensor) -> torch.Tensor:
    """By one quotient of polynomials: a division for each of Lanczos' terms took longer."""
    reflected = x < 0.5
    z = torch.where(reflected, 1 - x, x)
    near = torch.clamp(z, max=1e15)
    above, below = (_polynomial(near, factors) for factors in GAMMA)
    sine = torch.abs(_sine_of_turns(_fraction(x)))
    above, below = (
        torch.where(reflected, math.pi * below, above),
        torch.where(reflected, sine * above, below),
    )
    rest = torch.log(above / below)
    whole = (z - 0.5) * (torch.log(z + (GAMMA_SHIFT - 0.5)) - 1) - GAMMA_SHIFT
    found = torch.where(reflected, rest - whole, rest + whole)
    return torch.where(torch.isinf(x), math.inf, found)


def _multivariate(x: torch.Tensor, p: int) -> torch.Tensor:
    parts = [_log_gamma(x - 0.5 * i) for i in range(p)]
    return functools.reduce(torch.add, parts) + p * (p - 1) / 4 * math.log(math.pi)


def _digamma(x: torch.Tensor) -> torch.Tensor:
    reflected = x < 0
    y = torch.where(reflected, 1 - x, x)
    below = torch.zeros_like(y)
    for step in range(_SHIFT):
        below = below + 1 / (y + step)
    z = y + _SHIFT
    square = 1 / (z * z)
    series = _polynomial(square, (*reversed(_DIGAMMA), 0.0))
    found = torch.log(z) - 0.5 / z - series - below
    found = torch.where(torch.isinf(y), math.inf, found)
    part = _fraction(x)
    cosine = _sine_of_turns(0.5 - torch.abs(part))
    other = found - math.pi * cosine / _sine_of_turns(part)
    # At a pole below zero there is none; at zero it is infinite, by its sign.
    other = torch.where(x == torch.floor(x), math.nan, other)
    return torch.where(x == 0, -1 / x, torch.where(reflected, other, found))


def _trigamma(x: torch.Tensor) -> torch.Tensor:
    reflected = x < 0.5
    y = torch.where(reflected, 1 - x, x)
    below = torch.zeros_like(y)
    for step in range(_SHIFT):
        below = below + 1 / ((y + step) * (y + step))
    z = y + _SHIFT
    square = 1 / (z * z)
    series = _polynomial(square, (*reversed(_TRIGAMMA), 0.0)) / z
    found = 1 / z + 0.5 * square + series + below
    sine = _sine_of_turns(_fraction(x))
    return torch.where(reflected, math.pi**2 / (sine * sine) - found, found)


def _polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    if n > 1:
        return polygamma(n, x)
    return _trigamma(x) if n else _digamma(x)


def _quantile(gap: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
    """Of the normal distribution, given how far from a half, and how far from the end."""

    square, root = gap * gap, torch.sqrt(-2 * torch.log(tail))
    far = tail < _TAIL
    # One division for both.
    above, below = (
        torch.where(far, _polynomial(root, end), _polynomial(square, middle))
        for end, middle in zip(_END, _MIDDLE, strict=True)
    )
    found = above / below
    end = torch.where(tail == 0, -math.inf, found)
    return torch.where(far, torch.where(gap < 0, end, -end), gap * found)


def _inverse_error(x: torch.Tensor) -> torch.Tensor:
    return _quantile(0.5 * x, 0.5 * (1 - torch.abs(x))) / math.sqrt(2)


def _normal_quantile(p: torch.Tensor) -> torch.Tensor:
    return _quantile(p - 0.5, torch.minimum(p, 1 - p))


def _complement_of_size(x: torch.Tensor) -> torch.Tensor:
    """``exp(x ** 2) erfc(x)`` of finite numbers that are not below zero."""
    inverse = 1 / (x + _COMPLEMENT_AT)
    return _polynomial((x - _COMPLEMENT_AT) * inverse, _COMPLEMENT) * inverse


def _complement(x: torch.Tensor) -> torch.Tensor:
    size = torch.clamp(torch.abs(x), max=_VANISHED)
    found = torch.exp(-size * size) * _complement_of_size(size)
    # Not a choice of two: a GPU would compute what they share for each.
    below = (x < 0).to(x.dtype)
    return 2 * below + (1 - 2 * below) * found


def _scaled_complement(x: torch.Tensor) -> torch.Tensor:
    found = torch.where(torch.isinf(x), 0.0, _complement_of_size(torch.abs(x)))
    return torch.where(x < 0, 2 * torch.exp(x * x) - found, found)


def _log_normal(x: torch.Tensor) -> torch.Tensor:
    """Of the normal distribution's share below, which vanishes long before its logarithm."""
    y = torch.abs(x) / math.sqrt(2)
    tail = torch.log(_complement_of_size(y)) - y * y - math.log(2)
    tail = torch.where(torch.isinf(y), -math.inf, tail)
    return torch.where(x < 0, tail, torch.log1p(-torch.exp(tail)))


def _bessel(parts: Sequence[Sequence[float]], *, odd: bool, scaled: bool) -> Function:
    near, far = parts

    def function(x: torch.Tensor) -> torch.Tensor:
        size = torch.abs(x)
        small, large = torch.clamp(size, max=3.75), torch.clamp(size, min=3.75)
        ratio = small / 3.75
        inner = _polynomial(ratio * ratio, near)
        inner = inner * small if odd else inner
        inner = inner * torch.exp(-small) if scaled else inner
        outer = _polynomial(3.75 / large, far) / torch.sqrt(large)
        if not scaled:
            # In two: what it grows by exceeds float32 before the function does.
            root = torch.exp(0.5 * large)
            outer = outer * root * root
            outer = torch.where(torch.isinf(size), math.inf, outer)
        found = torch.where(size < 3.75, inner, outer)
        return torch.where(x < 0, -found, found) if odd else found

    return function


_EXACT = (_log_gamma, _multivariate)

_BESSEL = {
    (odd, scaled): _bessel(_I1 if odd else _I0, odd=odd, scaled=scaled)
    for odd in (False, True)
    for scaled in (False, True)
}

_STEADY = (
    *(_inverse_error, _normal_quantile, _complement, _scaled_complement, _log_normal),
    *_BESSEL.values(),
)
"""Those that subtract nothing that is nearly equal: in float32 they are right to the digits that
half precision has, and take a third of the time on a GPU."""


def special_functions() -> dict[Any, Callable[..., Any]]:
    """What takes special functions apart, by operator."""
    aten = torch.ops.aten
    functions: dict[Any, Callable[..., torch.Tensor]] = {
        aten.lgamma: _log_gamma,
        aten.mvlgamma: _multivariate,
        aten.digamma: _digamma,
        aten.polygamma: _polygamma,
        aten.erfinv: _inverse_error,
        aten.special_ndtri: _normal_quantile,
        aten.erfc: _complement,
        aten.special_erfcx: _scaled_complement,
        aten.special_log_ndtr: _log_normal,
        aten.i0: _BESSEL[False, False],
        aten.special_i0: _BESSEL[False, False],
        aten.special_i0e: _BESSEL[False, True],
        aten.special_i1: _BESSEL[True, False],
        aten.special_i1e: _BESSEL[True, True],
        aten.special_modified_bessel_i0: _BESSEL[False, False],
        aten.special_modified_bessel_i1: _BESSEL[True, False],
        aten.special_bessel_j0: bessel.first_kind(0),
        aten.special_bessel_j1: bessel.first_kind(1),
        aten.special_bessel_y0: bessel.second_kind(0),
        aten.special_bessel_y1: bessel.second_kind(1),
        aten.special_spherical_bessel_j0: bessel.spherical,
        aten.special_airy_ai: airy,
        aten.special_zeta: zeta,
    }
    growing = (_BESSEL[False, False], _BESSEL[True, False])
    for order, grows in enumerate(growing):
        for scaled in (False, True):
            name = f"special_{'scaled_' if scaled else ''}modified_bessel_k{order}"
            apart = bessel.falling(order, grows, scaled=scaled)
            functions[getattr(aten, name)] = apart
    for kind in "tuvw":
        for shifted in (False, True):
            name = f"special_{'shifted_' if shifted else ''}chebyshev_polynomial_{kind}"
            functions[getattr(aten, name)] = polynomial(kind, shifted=shifted)
    found = {whole.default: _computed_wide(apart) for whole, apart in functions.items()}
    for one in (aten.special_zeta.other_scalar, aten.special_zeta.self_scalar):
        found[one] = _computed_wide(zeta)
    for name, step in STEPS.items():
        whole = getattr(aten, f"special_{name}")
        found[whole.n_scalar] = _computed_wide(of_degree(step))
    for whole, apart in functions.items():
        if "chebyshev" in str(whole):
            found[whole.x_scalar] = found[whole.n_scalar] = _computed_wide(apart)
    return found
