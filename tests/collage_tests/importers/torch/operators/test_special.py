"""Special functions that are taken apart, to float32's last digits, beside PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
mpmath = pytest.importorskip("mpmath")

_ENDS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -1e-30, 3.0, 1e30, 9.1, -9.1]


@pytest.mark.parametrize(
    ("name", "wanted", "least"),
    [
        ("erfc", torch.erfc, -20.0),
        ("special_erfcx", torch.special.erfcx, -9.0),
        ("special_log_ndtr", torch.special.log_ndtr, -30.0),
    ],
)
def test_complements_of_the_error_function(name: str, wanted: object, least: float) -> None:
    from collage.importers.torch.operators.elementary.special import special_functions

    apart = special_functions()[getattr(torch.ops.aten, name).default]
    drawn = [torch.rand(20000) * (13 - low) + low for low in (least, -1.0)]
    x = torch.cat([*drawn, torch.tensor(_ENDS)])
    x = x[~(x < least) | torch.isinf(x)]
    found, exact = apart(x), wanted(x.double())  # type: ignore[operator]
    torch.testing.assert_close(found, exact.float(), rtol=2.4e-7, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        *("erfc", "erfinv", "i0", "special_i0e", "special_i1", "special_i1e", "special_ndtri"),
        *("special_erfcx", "special_log_ndtr"),
    ],
)
def test_every_number_of_half_precision(name: str, kind: torch.dtype) -> None:
    """The nearest one, or the other one of two that are about as near."""
    from collage.importers.torch.operators.elementary.special import special_functions

    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    x = bits.view(kind)[torch.isfinite(bits.view(kind))]
    apart = special_functions()[getattr(torch.ops.aten, name).default]
    found, exact = (
        apart(x).double(),
        getattr(torch.special, name.removeprefix("special_"))(x.double()),
    )
    nearest = exact.to(kind).double()
    same = (found == nearest) | (torch.isnan(found) & torch.isnan(nearest))
    digits, least = {torch.float16: (11, -24), torch.bfloat16: (8, -133)}[kind]
    bound = 1.001 * (exact.abs() * 2.0**-digits).clamp(min=2.0 ** (least - 1))
    off = (found - exact).abs() <= bound
    assert bool((same | off).all()), x[~(same | off)][:5]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bessel_j0", lambda x: mpmath.besselj(0, x)),
        ("bessel_j1", lambda x: mpmath.besselj(1, x)),
        ("bessel_y0", lambda x: mpmath.bessely(0, x)),
        ("bessel_y1", lambda x: mpmath.bessely(1, x)),
        ("modified_bessel_k0", lambda x: mpmath.besselk(0, x)),
        ("modified_bessel_k1", lambda x: mpmath.besselk(1, x)),
        ("scaled_modified_bessel_k0", lambda x: mpmath.exp(x) * mpmath.besselk(0, x)),
        ("scaled_modified_bessel_k1", lambda x: mpmath.exp(x) * mpmath.besselk(1, x)),
        ("spherical_bessel_j0", lambda x: mpmath.sin(x) / x),
    ],
)
def test_bessel_functions(name: str, wanted: Callable[[float], Any]) -> None:
    """PyTorch's own are off by up to 9e-7, in float64 as well."""
    from collage.importers.torch.operators.elementary.special import special_functions

    operator = getattr(torch.ops.aten, "special_" + name).default
    apart = special_functions()[operator]
    x = torch.cat([torch.rand(150) * 40, torch.rand(100) * 3, torch.tensor([1e-30, 3.0, 2.0])])
    exact = torch.tensor([float(wanted(float(value))) for value in x])
    torch.testing.assert_close(apart(x), exact, rtol=3e-7, atol=2e-7)
    ends = [0.0, math.inf, math.nan, *([-math.inf, -3.0] if "_j" in name else [-1.0])]
    found, theirs = apart(torch.tensor(ends)), operator(torch.tensor(ends))
    torch.testing.assert_close(found, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("order", [2, 3, 7])
def test_higher_derivatives_of_digamma(order: int) -> None:
    from collage.importers.torch.operators.elementary.special import special_functions

    apart = special_functions()[torch.ops.aten.polygamma.default]
    x = torch.cat([torch.rand(5000) * 30 + 0.01, -torch.rand(5000) * 5 - 0.01])
    x = x[(x - x.round()).abs() > 1e-2]
    exact = torch.polygamma(order, x.double())
    torch.testing.assert_close(apart(order, x), exact.float(), rtol=5e-6, atol=1e-5)
    ends = torch.tensor([0.0, -1.0, -2.0, math.inf, math.nan])
    wanted = torch.polygamma(order, ends)
    found = apart(order, ends)
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_airys_function() -> None:
    """PyTorch's own is off by up to 3e-6 in waves, in float64 as well; at no end it has none."""
    from collage.importers.torch.operators.elementary.special import special_functions

    operator = torch.ops.aten.special_airy_ai.default
    apart = special_functions()[operator]
    drawn = [torch.rand(300) * 8 - 4, torch.rand(200) * -60, torch.rand(100) * 120]
    x = torch.cat([*drawn, torch.tensor([0.0, 2.09, -2.09, 8.33, 1e-30])])
    exact = torch.tensor([float(mpmath.airyai(float(value))) for value in x])
    torch.testing.assert_close(apart(x), exact, rtol=1e-6, atol=1e-7)
    ends = torch.tensor([math.inf, -math.inf, math.nan, 104.0])
    torch.testing.assert_close(apart(ends), operator(ends), equal_nan=True)


def test_zeta_function() -> None:
    """Sums that begin above zero and below, of any power; poles, and where there is none."""
    from collage.importers.torch.operators.elementary.special import special_functions

    operators = torch.ops.aten.special_zeta
    apart = special_functions()[operators.default]
    x = torch.cat([torch.rand(4000) * 9 + 1.01, torch.rand(500) * 400 + 2])
    q = torch.cat([torch.rand(4000) * 40 + 0.01, torch.rand(500) * 300 + 0.5])
    exact = operators.default(x.double(), q.double()).float()
    torch.testing.assert_close(apart(x, q), exact, rtol=1e-6, atol=1e-37)
    power, begin = torch.randint(2, 7, (2000,)).float(), -torch.rand(2000) * 8
    kept = (begin - begin.round()).abs() > 1e-2
    power, begin = power[kept], begin[kept]
    exact = operators.default(power.double(), begin.double()).float()
    torch.testing.assert_close(apart(power, begin), exact, rtol=1e-5, atol=1e-5)
    edges = (
        [1.0, 0.5, 2.0, 2.0, 2.5, 3.0, math.nan, 2.0],
        [3.0, 3.0, 0.0, -2.0, -1.5, -1.0, 2.0, math.nan],
    )
    power, begin = (torch.tensor(each) for each in edges)
    wanted = operators.default(power, begin)
    torch.testing.assert_close(apart(power, begin), wanted, equal_nan=True)
    one, other = (
        special_functions()[operators.other_scalar],
        special_functions()[operators.self_scalar],
    )
    torch.testing.assert_close(one(x, 2.5), operators.other_scalar(x.double(), 2.5).float())
    torch.testing.assert_close(other(3.0, q), operators.self_scalar(3.0, q.double()).float())


@pytest.mark.parametrize("shifted", ["", "shifted_"])
@pytest.mark.parametrize("kind", ["t", "u", "v", "w"])
def test_chebyshevs_polynomials(kind: str, shifted: str) -> None:
    """At any place and of any degree, whole or not; none below zero."""
    from collage.importers.torch.operators.elementary.special import special_functions

    operators = getattr(torch.ops.aten, f"special_{shifted}chebyshev_polynomial_{kind}")
    apart = special_functions()[operators.default]
    x = torch.cat([torch.rand(3000) * 3 - 1.5, torch.tensor([1.0, -1.0, 0.0, 0.5]).repeat(8)])
    n = torch.cat([torch.rand(3000) * 14 - 2, torch.arange(8.0).repeat_interleave(4)])
    exact = operators.default(x.double(), n.double())
    torch.testing.assert_close(apart(x, n), exact.float(), rtol=1e-5, atol=1e-6)
    many = torch.rand(500) * 2 - 1 if not shifted else torch.rand(500)
    exact = operators.default(many.double(), torch.full((500,), 40.0, dtype=torch.float64))
    of_scalar = special_functions()[operators.n_scalar](many, 40)
    torch.testing.assert_close(of_scalar, exact.float(), rtol=1e-4, atol=1e-5)
    degrees = torch.arange(9)
    found = special_functions()[operators.x_scalar](0.3, degrees)
    torch.testing.assert_close(found, operators.x_scalar(0.3, degrees), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("hermite_polynomial_h", "hermite_polynomial_he"),
        *("laguerre_polynomial_l", "legendre_polynomial_p"),
    ],
)
def test_polynomials_of_a_degree_that_is_a_number(name: str) -> None:
    """One by one beyond any degree that is asked for, also where they are huge."""
    from collage.importers.torch.operators.elementary.special import special_functions
    from collage.importers.torch.operators.errors import RefusedError

    scalar = getattr(torch.ops.aten, f"special_{name}").n_scalar
    apart = special_functions()[scalar]
    x = torch.cat([torch.rand(500) * 5 - 2.5, torch.tensor([0.0, 1.0, -1.0, 0.5])])
    for n in (-2, -0.5, 0, 1, 2, 3, 3.7, 9, 40):
        exact = scalar(x.double(), n)
        scale = float(exact.abs().max())
        torch.testing.assert_close(apart(x, n), exact.float(), rtol=1e-6, atol=1e-6 * scale)
    with pytest.raises(RefusedError, match="a degree above 64"):
        apart(x, 2000)
