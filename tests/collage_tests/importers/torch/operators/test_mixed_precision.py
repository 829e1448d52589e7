"""Networks with float32 beside half precision: norms kept in float32, autocast, nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.collage_tests.importers.torch.torch_functions import imported, require_agreement, rows

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional

NORMS: dict[str, Callable[..., Any]] = {
    "batch": lambda x, w, b: F.batch_norm(x, b, w.abs() + 0.5, w, b),
    "batch, without weights": lambda x, w, b: F.batch_norm(x, b, w.abs() + 0.5),
    "batch, of its own": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "instance": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "group": lambda x, w, b: F.group_norm(x, 2, w, b),
    "layer": lambda x, w, b: F.layer_norm(x.mT, (4,), w, b),
    "layer, without a bias": lambda x, w, b: F.layer_norm(x.mT, (4,), w),
}


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_in_float32_of_half_precision(norm: str, kind: Any) -> None:
    """As layers stay that are not converted with the rest of a network."""
    torch.manual_seed(7)
    inputs = rows(2, 4, 5).to(kind), rows(4), rows(4)
    (found,) = imported(NORMS[norm], *inputs)
    theirs = NORMS[norm](*inputs)
    assert str(theirs.dtype).endswith(found.dtype.name)
    exact = NORMS[norm](*(one.double() for one in inputs)).numpy()
    np.testing.assert_allclose(
        found.astype(np.float64), exact, rtol=torch.finfo(kind).eps, atol=1e-3
    )


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_what_autocast_gives_has_the_type_that_pytorch_gives(kind: Any) -> None:
    """Operators that PyTorch takes apart as it runs them: their parts are in half precision."""

    def function(x: Any) -> Any:
        with torch.autocast("cpu", kind):
            found = torch.einsum("bij,bkj->bik", x, x)
            return found, found.softmax(-1), found @ x

    inputs = (rows(2, 6, 12),)
    for mine, theirs in zip(imported(function, *inputs), function(*inputs), strict=True):
        assert str(theirs.dtype).endswith(mine.dtype.name)
        limit = 4 * torch.finfo(kind).eps * float(theirs.abs().max())
        assert np.abs(mine.astype(np.float64) - theirs.double().numpy()).max() < limit


def test_what_is_made_of_no_numbers_in_bfloat16() -> None:
    def function(x: Any) -> Any:
        none = x[:0]
        found = none.sum(0), none.prod(0), none.mT @ none, F.pad(none, (0, 0, 1, 1)), none.mean()
        return tuple(one.float() for one in found)

    require_agreement(function, lambda: (rows(2, 5).bfloat16(),))
