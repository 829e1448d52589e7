"""Images and volumes looked up at places, beside PyTorch."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.relax.kept_whole.sampling import BEYOND, METHODS, Sampling, grid_sample
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", exc_type=ImportError)


def check(
    x: np.ndarray, grid: np.ndarray, how: Sampling, context: BuildContext, schedule: str
) -> None:
    def body(emit: cases.Body, x: relax.Expr, grid: relax.Expr) -> relax.Expr:
        return emit(grid_sample(x, grid, how))

    mod = cases.partition(body, [x, grid])
    (found,) = cases.run(mod, [x, grid], cases.for_example(context), schedule=schedule)
    (plain,) = evaluate(mod, [x, grid])
    wide = (torch.from_numpy(each.astype(np.float64)) for each in (x, grid))
    expected = torch.nn.functional.grid_sample(
        *wide, mode=how.method, padding_mode=how.beyond, align_corners=how.corners
    )
    assert found.dtype == plain.dtype == x.dtype
    for each in (found, plain):
        np.testing.assert_allclose(each, expected.numpy(), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("method", "beyond"), list(itertools.product(METHODS, BEYOND)))
def test_images_are_looked_up_as_pytorch_does(
    method: str, beyond: str, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    apart = [(True, "plain")] if (method, beyond) == ("bicubic", "reflection") else []
    for corners, schedule in ((False, "default"), (True, "default"), *apart):
        x = rng.standard_normal((2, 3, 7, 5)).astype(np.float32)
        # Not in the middle between two elements, where rounding decides.
        grid = (rng.integers(-90, 90, (2, 4, 9, 2)) / 60 + 0.0037).astype(np.float32)
        check(x, grid, Sampling(method, beyond, corners), context, schedule)


@pytest.mark.parametrize(("method", "beyond"), list(itertools.product(METHODS[:2], BEYOND)))
def test_volumes_are_looked_up_as_pytorch_does(
    method: str, beyond: str, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    apart = [(False, "plain")] if (method, beyond) == ("bilinear", "zeros") else []
    for corners, schedule in ((False, "default"), (True, "default"), *apart):
        x = rng.standard_normal((2, 2, 4, 1, 5)).astype(np.float32)
        grid = (rng.integers(-90, 90, (2, 3, 2, 4, 3)) / 60 + 0.0037).astype(np.float32)
        check(x, grid, Sampling(method, beyond, corners), context, schedule)


def test_what_is_outside_is_nothing_even_beside_an_infinite_element(context: BuildContext) -> None:
    x = np.full((1, 1, 2, 2), math.inf, np.float32)
    grid = np.array([[[[3.0, 0.0], [0.3, 5.0], [1e30, -1e30]]]], np.float32)
    check(x, grid, Sampling("bilinear", "zeros", corners=False), context, "default")


@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("method", METHODS)
def test_places_that_are_no_numbers_read_nothing_outside(
    method: str, beyond: str, context: BuildContext
) -> None:
    x = np.random.default_rng().standard_normal((1, 2, 3, 4)).astype(np.float32)
    grid = np.array([[[[math.nan, 0.1], [math.inf, -math.inf], [0.2, 0.1]]]], np.float32)

    def body(emit: cases.Body, x: relax.Expr, grid: relax.Expr) -> relax.Expr:
        return emit(grid_sample(x, grid, Sampling(method, beyond, corners=False)))

    (found,) = cases.run(cases.partition(body, [x, grid]), [x, grid], context)
    expected = torch.nn.functional.grid_sample(
        *map(torch.from_numpy, (x, grid)), mode=method, padding_mode=beyond, align_corners=False
    ).numpy()
    # Infinite places are none to PyTorch where what is outside is nothing.
    expected[..., 1] = found[..., 1] if beyond == "zeros" else expected[..., 1]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
