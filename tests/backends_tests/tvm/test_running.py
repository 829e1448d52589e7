"""Running extremes as the processor computes them, and taken apart, beside plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.relax.kept_whole.running import running_extreme
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases


def wanted(x: np.ndarray, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Element by element: of equal values the last stands, and what is no number stays."""
    values, places = x.copy(), np.zeros(x.shape, "int64")
    lines = (np.moveaxis(each, axis, 0) for each in (x, values, places))
    given, out, where = (line.reshape(x.shape[axis], -1) for line in lines)
    for column in range(given.shape[1]):
        best, at = given[0, column], 0
        for row, here in enumerate(given[:, column]):
            beats = here >= best if largest else here <= best
            if beats or (here != here):
                best, at = here, row
            out[row, column], where[row, column] = best, at
    moved = x.shape[axis : axis + 1] + x.shape[:axis] + x.shape[axis + 1 :]
    back = [np.moveaxis(each.reshape(moved), 0, axis) for each in (out, where)]
    return back[0], back[1]


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """With ties, infinities and what is no number."""
    rng = np.random.default_rng()
    x = rng.integers(-4, 5, shape).astype(dtype)
    if "float" in dtype:
        for value in (math.inf, -math.inf, math.nan):
            x[rng.random(shape) < 0.03] = value
    return x


@pytest.mark.parametrize("schedule", ["default", "plain"])
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((3, 41), 1, "float32"),
        ((1, 300), 1, "float32"),
        ((37, 24), 0, "float32"),
        ((2, 19, 7), 1, "float64"),
        ((8, 1, 5), 1, "float32"),
        ((4, 6), 1, "int8"),
        ((12,), 0, "int32"),
        ((0, 5), 0, "float32"),
        ((3, 0), 1, "float32"),
    ],
)
def test_extremes_and_places_are_those_of_a_loop(
    shape: tuple[int, ...], axis: int, dtype: str, schedule: str, context: BuildContext
) -> None:
    x = drawn(shape, dtype)
    for largest in (True, False):

        def body(emit: cases.Body, x: relax.Expr, largest: bool = largest) -> relax.Expr:
            return emit(running_extreme(x, axis, largest))

        mod = cases.partition(body, [x])
        here = cases.for_example(context)
        expected = wanted(x, axis, largest) if x.size else (x, np.zeros(shape, "int64"))
        for found in (cases.run(mod, [x], here, schedule=schedule), evaluate(mod, [x])):
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs)
