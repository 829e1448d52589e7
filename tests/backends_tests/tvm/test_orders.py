"""Orders of rows beside NumPy's stable sorts: short and long, along any axis, with equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases

CASES = [((3, 5), -1), ((40, 16), 1), ((64, 7), 0), ((2, 65, 3), 1), ((6, 300), -1), ((5000,), 0),
         ((700, 4), 0), ((1, 1), 1)]  # fmt: skip
_ENDS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38]


def _drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """With equal values and the ends of a type in it."""
    rng = np.random.default_rng()
    if dtype == "int32":
        ends = np.array([-(1 << 31), (1 << 31) - 1, 0])
        found = np.where(
            rng.random(shape) < 0.2, rng.choice(ends, shape), rng.integers(-9, 9, shape)
        )
        return found.astype("int32")
    some = np.where(rng.random(shape) < 0.5, rng.integers(-5, 5, shape), rng.normal(size=shape))
    return np.where(rng.random(shape) < 0.1, rng.choice(_ENDS, shape), some).astype("float32")


def _order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """What is no number comes last, and first if the largest come first."""
    wide = x.astype(np.float64)
    if not descending:
        return np.argsort(wide, axis=axis, kind="stable")
    return np.argsort(np.where(np.isnan(wide), -np.inf, -wide), axis=axis, kind="stable")


@pytest.mark.parametrize(("shape", "axis"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("descending", [False, True])
def test_orders(
    shape: tuple[int, ...], axis: int, dtype: str, descending: bool, context: BuildContext
) -> None:
    x = _drawn(shape, dtype)
    if dtype == "float32" and descending:
        x[np.isposinf(x)] = 1.0  # what is no number and the infinite are one here for NumPy
    k = max(1, shape[axis] // 2)

    def body(emit: cases.Body, x: relax.Expr) -> relax.Expr:
        places = emit(op.argsort(x, axis, descending, "int64"))
        values = emit(op.sort(x, axis, descending))
        pair = emit(op.topk(x, k, axis, "both", descending, "int32"))
        first = [emit(relax.TupleGetItem(pair, i)) for i in range(2)]
        return emit(relax.Tuple([places, values, *first]))

    mod = cases.partition(body, [x])
    places, values, best, where = cases.run(mod, [x], cases.for_example(context, 2))
    wanted = _order(x, axis, descending)
    ordered = np.take_along_axis(x, wanted, axis)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, ordered)
    np.testing.assert_array_equal(where, np.take(wanted, np.arange(k), axis))
    np.testing.assert_array_equal(best, np.take(ordered, np.arange(k), axis))


def test_few_of_a_long_row(context: BuildContext) -> None:
    x = np.random.default_rng().normal(size=(4, 500)).astype("float32")
    mod = cases.partition(lambda emit, x: emit(op.topk(x, 3, -1, "values", True)), [x])
    (found,) = cases.run(mod, [x], context)
    np.testing.assert_array_equal(found, -np.sort(-x, -1)[:, :3])
