"""Blocks added up where they overlap, beside PyTorch's own ``fold``."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

from collage.importers.torch.operators.folds import col2im  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("seed", range(40))
def test_any_geometry(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, dilation, stride = ([int(n) for n in rng.integers(1, m, 2)] for m in (5, 3, 5))
    padding, size = ([int(n) for n in rng.integers(*m, 2)] for m in ((0, 3), (8, 13)))
    blocks = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    x = torch.randn(2, 3 * kernel[0] * kernel[1], blocks[0] * blocks[1], dtype=torch.float64)
    expected = torch.nn.functional.fold(x, size, kernel, dilation, padding, stride)
    torch.testing.assert_close(col2im(x, size, kernel, dilation, padding, stride), expected)
    one = col2im(x[0], size, kernel, dilation, padding, stride)
    torch.testing.assert_close(one, expected[0])


def test_halves_are_added_up_wide() -> None:
    x = torch.full((1, 2 * 49, 36), 2.0**-6).half()
    x[:, ::49] = 1024
    found = col2im(x, (24, 24), (7, 7), (1, 1), (3, 3), (4, 4))
    expected = torch.nn.functional.fold(x.double(), (24, 24), (7, 7), (1, 1), (3, 3), (4, 4))
    torch.testing.assert_close(found.double(), expected, rtol=2**-11, atol=0)
