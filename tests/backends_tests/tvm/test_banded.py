"""Products with constant matrices of few neighbours each, beside NumPy's of float64."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.tvm.cpu.images.banded import band
from tests.backends_tests.tvm import cases


def banded(after: int, before: int, taps: int) -> np.ndarray:
    """Of elements that lie side by side, more of them at some places than at others."""
    rng = np.random.default_rng()
    matrix = np.zeros((after, before), np.float32)
    for row in range(after):
        count = rng.integers(0, taps + 1)
        first = int(row * (before - count) / max(after - 1, 1))
        matrix[row, first : first + count] = rng.standard_normal(count)
    return matrix


@pytest.mark.parametrize(
    ("lead", "before", "after", "taps"),
    [((3, 41), 90, 33, 5), ((7,), 201, 80, 20), ((1,), 64, 200, 3), ((2, 3, 5), 30, 7, 4)],
)
def test_products_with_bands_are_numpys(
    lead: tuple[int, ...], before: int, after: int, taps: int, context: BuildContext
) -> None:
    matrix = banded(after, before, taps)
    assert band(matrix) is not None
    x = np.random.default_rng().standard_normal((*lead, before)).astype(np.float32)
    turned = np.ascontiguousarray(np.moveaxis(x, -1, -2)) if len(lead) > 1 else x.T.copy()

    def right(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.op.matmul(x, relax.const(matrix.T.copy())))

    def left(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.op.matmul(relax.const(matrix), x))

    wide = matrix.astype(np.float64)
    for body, given, expected in ((right, x, x @ wide.T), (left, turned, wide @ turned)):
        mod = cases.partition(body, [given])
        (found,) = cases.run(mod, [given], cases.for_example(context))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_no_other_matrix_is_taken_for_a_band() -> None:
    rng = np.random.default_rng()
    assert band(rng.standard_normal((40, 60)).astype(np.float32)) is None
    assert band(np.eye(60, dtype=np.float32) + np.eye(60, k=50, dtype=np.float32)) is None
    infinite = np.eye(60, dtype=np.float32)
    infinite[3, 3] = np.inf
    assert band(infinite) is None
