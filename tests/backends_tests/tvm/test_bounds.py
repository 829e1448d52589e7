"""Places outside of a tensor: reads take the nearest element, writes are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.testing import graph
from tests.backends_tests.tvm import cases as tvm_cases

ROWS, WIDTH = 7, 5
FAR = 2**31 - 1
PLACES = np.array([[0, ROWS], [FAR, 3], [ROWS + 20, 6], [1, 1]])


def _data(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype("float32")


def _inside(places: np.ndarray) -> np.ndarray:
    return np.clip(places, 0, ROWS - 1)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_rows_are_taken_from_inside(dtype: str, context: BuildContext) -> None:
    x, places = _data(ROWS, WIDTH), np.clip(PLACES, 0, np.iinfo(dtype).max).astype(dtype)

    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.take(x, i, axis=0, mode="fast")

    mod = graph([x.shape, places.shape], body, ["float32", dtype])
    (got,) = tvm_cases.run(mod, [x, places], context)
    np.testing.assert_array_equal(got, x[_inside(places)])


def test_below_the_first_one_is_the_first_one(context: BuildContext) -> None:
    x, places = _data(ROWS, WIDTH), np.array([-1, -(2**31), 2], "int32")

    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.take(x, i, axis=0, mode="fast")

    mod = graph([x.shape, places.shape], body, ["float32", "int32"])
    (got,) = tvm_cases.run(mod, [x, places], context)
    np.testing.assert_array_equal(got, x[[0, 0, 2]])


def test_elements_are_gathered_from_inside(context: BuildContext) -> None:
    x, places = _data(ROWS, 2), PLACES.astype("int64")

    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.gather_elements(x, i, axis=0)

    mod = graph([x.shape, places.shape], body, ["float32", "int64"])
    (got,) = tvm_cases.run(mod, [x, places], context)
    np.testing.assert_array_equal(got, np.take_along_axis(x, _inside(places), 0))


def test_places_in_several_axes_are_gathered_from_inside(context: BuildContext) -> None:
    x, places = _data(ROWS, ROWS), PLACES.astype("int64")

    def body(_: Any, x: relax.Var, i: relax.Var) -> relax.Expr:
        return op.gather_nd(x, i)

    mod = graph([x.shape, places.shape], body, ["float32", "int64"])
    (got,) = tvm_cases.run(mod, [x, places], context)
    inside = _inside(places)
    np.testing.assert_array_equal(got, x[inside[:, 0], inside[:, 1]])


@pytest.mark.parametrize("reduction", ["update", "add"])
def test_nothing_is_written_outside(reduction: str, context: BuildContext) -> None:
    """What stands beside the result would be written over, or the process ended."""
    x, places, values = _data(ROWS, 2), PLACES.astype("int64"), _data(4, 2)

    def body(_: Any, x: relax.Var, i: relax.Var, v: relax.Var) -> relax.Expr:
        return op.scatter_elements(x, i, v, axis=0, reduction=reduction)

    mod = graph([x.shape, places.shape, values.shape], body, ["float32", "int64", "float32"])
    (got,) = tvm_cases.run(mod, [x, places, values], context)
    wanted = x.copy()
    for (row, column), place in np.ndenumerate(places):
        if place < ROWS:
            before = wanted[place, column] if reduction == "add" else 0
            wanted[place, column] = before + values[row, column]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_rows_outside_are_not_written(context: BuildContext) -> None:
    x, places, values = _data(ROWS, WIDTH), np.array([[2], [ROWS], [FAR]]), _data(3, WIDTH)

    def body(_: Any, x: relax.Var, i: relax.Var, v: relax.Var) -> relax.Expr:
        return op.scatter_nd(x, i, v, reduction="add")

    mod = graph([x.shape, places.shape, values.shape], body, ["float32", "int64", "float32"])
    (got,) = tvm_cases.run(mod, [x, places, values], context)
    wanted = x.copy()
    wanted[2] += values[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
