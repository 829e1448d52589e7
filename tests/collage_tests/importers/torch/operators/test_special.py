"""Special functions that are taken apart, to float32's last digits, beside PyTorch in float64."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)

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
