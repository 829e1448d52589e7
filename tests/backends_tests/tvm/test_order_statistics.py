"""Medians and modes as the processor computes them, beside sorted rows in Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.backends.relax.kept_whole.order_statistics import (
    MEDIAN,
    MODE,
    NUMBERS_MEDIAN,
    order_statistic,
)
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases


def expected_statistic(x: Any, which: str, axis: int) -> Any:
    """Places, line by line; what is no number is sorted last, and equals nothing."""
    lines = np.moveaxis(x, axis, -1)
    places = [_place(line, which) for line in lines.reshape(-1, lines.shape[-1])]
    return np.expand_dims(np.reshape(places, lines.shape[:-1]), axis)


def _place(line: Any, which: str) -> int:
    order = sorted(range(len(line)), key=lambda i: (bool(np.isnan(line[i])), line[i], i))
    numbers = [i for i in order if not np.isnan(line[i])]
    if which == MEDIAN:
        middle = order[(len(order) - 1) // 2]
        return min((i for i in order if np.isnan(line[i])), default=middle)
    if which == NUMBERS_MEDIAN:
        return numbers[(len(numbers) - 1) // 2] if numbers else 0
    if not numbers:
        return 0
    times = {float(line[i]): 0 for i in numbers}
    for i in numbers:
        times[float(line[i])] += 1
    best = max(times, key=lambda value: (times[value], -value))
    return max(i for i in numbers if line[i] == best)


@pytest.mark.parametrize("schedule", ["default", "plain"])
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((5, 41), 1, "float32"),
        ((300, 3), 0, "float32"),
        ((2, 19, 4), 1, "int32"),
        ((4, 1), 1, "int64"),
    ],
)
def test_medians_and_modes_are_those_of_the_sorted_line(
    shape: tuple[int, ...], axis: int, dtype: str, schedule: str, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    x = rng.integers(-4, 5, shape).astype(dtype)
    if "float" in dtype:
        x[rng.random(shape) < 0.03] = math.nan
        x[tuple([-1] * len(shape))] = math.inf
        np.moveaxis(x, axis, -1)[..., 0, :] = math.nan
    ways = (MEDIAN, NUMBERS_MEDIAN, MODE)

    def body(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        pairs = [emit(order_statistic(x, which, axis)) for which in ways]
        return emit(relax.Tuple([emit(relax.TupleGetItem(p, i)) for p in pairs for i in (0, 1)]))

    mod = cases.partition(body, [x])
    here = cases.for_example(context)
    for found in (cases.run(mod, [x], here, schedule=schedule), evaluate(mod, [x])):
        for which, value, place in zip(ways, found[::2], found[1::2], strict=True):
            expected = expected_statistic(x, which, axis)
            np.testing.assert_array_equal(place, expected)
            np.testing.assert_array_equal(value, np.take_along_axis(x, expected, axis))
