"""Slices that another tensor takes the place of, beside NumPy's assignments."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

CASES = [
    ((64, 40, 33), 2, (8, 20, 1), "pieces"),
    ((5, 31), -1, (0, 7, 1), "pieces"),
    ((5, 31), 1, (24, 31, 1), "pieces"),
    ((5, 31), 1, (0, 31, 1), "generic"),
    ((40,), 0, (9, 12, 1), "pieces"),
    ((64, 40, 33), 2, (1, 33, 2), None),
    ((7, 50), 1, (3, 49, 5), None),
    ((40,), 0, (2, 40, 3), None),
    ((5, 9, 11), 1, (2, 8, 1), "generic"),
    ((5, 9, 11), 0, (0, 5, 2), "generic"),
]
"""Shape, axis, slice and the family that takes it: none where loops are written out."""


@pytest.mark.parametrize(("shape", "axis", "bounds", "family"), CASES)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_slices_written_anew(
    shape: tuple[int, ...],
    axis: int,
    bounds: tuple[int, int, int],
    family: str | None,
    threads: int,
    dtype: str,
    context: BuildContext,
) -> None:
    rng = np.random.default_rng()
    x = rng.integers(-99, 99, shape).astype(dtype)
    places = (slice(None),) * (axis % len(shape)) + (slice(*bounds),)
    part = rng.integers(-99, 99, x[places].shape).astype(dtype)

    def body(emit: tvm_cases.Body, x: relax.Expr, part: relax.Expr) -> relax.Expr:
        return emit(op.slice_scatter(x, part, *bounds, axis=axis))

    mod = tvm_cases.partition(body, [x, part])
    context = dataclasses.replace(context, num_threads=threads)
    if family:
        assert tvm_cases.families(tvm_cases.kernels(mod, context)) == [family]
    (got,) = tvm_cases.run(mod, [x, part], context)
    x[places] = part
    np.testing.assert_array_equal(got, x)


def test_a_slice_between_elementwise_operators(context: BuildContext) -> None:
    rng = np.random.default_rng()
    x, part = (rng.standard_normal(shape).astype("float32") for shape in ((9, 40), (9, 11)))

    def body(emit: tvm_cases.Body, x: relax.Expr, part: relax.Expr) -> relax.Expr:
        return emit(
            op.nn.relu(emit(op.slice_scatter(x, emit(op.negative(part)), 5, 16, 1, axis=1)))
        )

    (got,) = tvm_cases.run(tvm_cases.partition(body, [x, part]), [x, part], context)
    x[:, 5:16] = -part
    np.testing.assert_array_equal(got, np.maximum(x, 0))
