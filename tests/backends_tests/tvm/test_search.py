"""Places in sorted rows as the processor finds them, and by comparing all with all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.relax.kept_whole.search import searchsorted
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases


@pytest.mark.parametrize(
    ("rows", "asked", "dtype"),
    [
        ((17,), (3, 50), "float32"),
        ((300,), (1000,), "float32"),
        ((5, 64), (5, 41), "float32"),
        ((2, 3, 1), (2, 3, 4), "int64"),
        ((100,), (1,), "float64"),
        ((0,), (4,), "float32"),
    ],
)
@pytest.mark.parametrize("right", [False, True])
def test_places_are_numpys(
    rows: tuple[int, ...], asked: tuple[int, ...], dtype: str, right: bool, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    sequence = np.sort(rng.integers(-20, 20, rows), -1).astype(dtype)
    values = rng.integers(-22, 23, asked).astype(dtype)
    if "float" in dtype:
        for value in (math.inf, -math.inf):
            values[rng.random(asked) < 0.1] = value

    def body(emit: cases.Body, sequence: relax.Expr, values: relax.Expr) -> relax.Expr:
        return emit(searchsorted(sequence, values, right=right, dtype="int32"))

    mod = cases.partition(body, [sequence, values])
    each = np.broadcast_to(sequence, (*asked[:-1], rows[-1])).reshape(
        math.prod(asked[:-1]), rows[-1]
    )
    side = "right" if right else "left"
    pairs = zip(each, values.reshape(-1, asked[-1]), strict=True)
    expected = np.stack([np.searchsorted(row, some, side) for row, some in pairs]).reshape(asked)
    for (found,) in (
        cases.run(mod, [sequence, values], context),
        evaluate(mod, [sequence, values]),
    ):
        assert found.dtype == "int32"
        np.testing.assert_array_equal(found, expected)


def test_all_come_before_what_is_no_number(context: BuildContext) -> None:
    for extent in (7, 90):
        sequence, values = np.arange(extent, dtype="float32"), np.array([3.0, math.nan], "float32")

        def body(emit: cases.Body, sequence: relax.Expr, values: relax.Expr) -> relax.Expr:
            return emit(searchsorted(sequence, values, right=False, dtype="int64"))

        mod = cases.partition(body, [sequence, values])
        here = cases.for_example(context)
        (found,) = cases.run(mod, [sequence, values], here)
        assert found.tolist() == [3, extent]
        assert evaluate(mod, [sequence, values])[0].tolist() == [3, extent]
