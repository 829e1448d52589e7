"""Interpolations by tables, beside TVM's own, which finds places and weights for each element."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

_LINEAR = {"method": "linear"}
_CUBIC = {"method": "cubic"}
_NEAREST = {"method": "nearest_neighbor"}
_CORNERS = {"coordinate_transformation_mode": "align_corners"}
_CORNER = {"coordinate_transformation_mode": "asymmetric"}

CASES: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any], str]] = [
    ((2, 9, 28, 23), (56, 46), _LINEAR, "written"),
    ((1, 3, 17, 40), (33, 65), {**_LINEAR, **_CORNERS}, "written"),
    ((1, 40, 30, 30), (17, 11), {**_LINEAR, **_CORNER}, "written"),
    ((1, 2, 7, 9), (1, 50), {**_LINEAR, "coordinate_transformation_mode": "pytorch_half_pixel"},
     "written"),
    ((1, 3, 16, 16), (64, 40), _CUBIC, "written"),
    ((1, 3, 8, 12), (13, 29), {**_CUBIC, **_CORNERS, "cubic_alpha": -0.5}, "written"),
    ((1, 3, 8, 11), (13, 29), {**_CUBIC, "cubic_exclude": 1}, "written"),
    ((3, 5, 24, 31), (24, 62), _LINEAR, "written"),
    ((3, 5, 24, 31), (48, 31), _LINEAR, "written"),
    ((3, 5, 24, 31), (24, 31), _LINEAR, "generic"),
    ((1, 2, 64, 64), (32, 8), _LINEAR, "generic"),
    ((1, 2, 9, 200), (18, 1600), _LINEAR, "written"),
    ((2, 3, 7, 7), (14, 14), {**_NEAREST, **_CORNER, "rounding_method": "floor"}, "written"),
    ((2, 3, 20, 33), (31, 100), {**_NEAREST, **_CORNER, "rounding_method": "floor"}, "written"),
    ((1, 3, 30, 50), (15, 25), {**_NEAREST, "rounding_method": "round_prefer_ceil"}, "written"),
    ((1, 3, 13, 17), (29, 18), {**_NEAREST, "rounding_method": "round_prefer_floor"}, "written"),
    ((1, 1, 5, 1), (11, 19), {**_NEAREST, **_CORNER, "rounding_method": "ceil"}, "written"),
    ((1, 8, 9, 9), (20, 20), {**_NEAREST, "rounding_method": "round"}, "generic"),
    ((2, 30, 31, 8), (60, 47), {**_LINEAR, "layout": "NHWC"}, "generic"),
]  # fmt: skip
"""Shape, size, how, and which family takes it."""


def test_interpolations(context: BuildContext) -> None:
    """All of them in one library, which compiles in a fraction of the time."""
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape, *_ in CASES]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        resized = [
            emit(op.image.resize2d(x, size, **{"layout": "NCHW", **how}))
            for x, (_, size, how, _) in zip(args, CASES, strict=True)
        ]
        return emit(relax.Tuple(resized))

    mod = tvm_cases.partition(body, inputs)
    context = dataclasses.replace(context, num_threads=3)
    families = tvm_cases.families(tvm_cases.kernels(mod, context))
    assert families == [family for *_, family in CASES]
    results = tvm_cases.run(mod, inputs, context)
    for got, wanted in zip(results, evaluate(mod, inputs), strict=True):
        tvm_cases.assert_close(got, wanted.astype(np.float64))


def test_what_is_around_an_interpolation_goes_along(context: BuildContext) -> None:
    data = np.random.default_rng().standard_normal((1, 24, 20, 21), dtype=np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        up = emit(op.image.resize2d(emit(op.exp(x)), (40, 42), layout="NCHW", method="linear"))
        return emit(op.add(emit(op.nn.relu(emit(op.subtract(up, relax.const(1.0))))), up))

    mod = tvm_cases.partition(body, [data])
    (got,) = tvm_cases.run(mod, [data], context)
    (wanted,) = evaluate(mod, [data])
    tvm_cases.assert_close(got, wanted.astype(np.float64))


def test_sizes_that_were_drawn(context: BuildContext) -> None:
    """Against numpy, which interpolates along one axis between the middles of elements."""
    rng = np.random.default_rng()
    sizes = [(rng.integers(2, 40, 2), rng.integers(2, 90, 2)) for _ in range(3)]
    inputs = [rng.standard_normal((1, 2, *before), dtype=np.float32) for before, _ in sizes]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        resized = [
            emit(op.image.resize2d(x, tuple(map(int, after)), layout="NCHW", method="linear"))
            for x, (_, after) in zip(args, sizes, strict=True)
        ]
        return emit(relax.Tuple(resized))

    results = tvm_cases.run(tvm_cases.partition(body, inputs), inputs, context)
    for got, data, (before, after) in zip(results, inputs, sizes, strict=True):
        wanted = data.astype(np.float64)
        for axis, b, a in zip((2, 3), before, after, strict=True):
            walk = (np.arange(a) + 0.5) * b / a - 0.5
            wanted = np.apply_along_axis(
                lambda row, walk=walk: np.interp(walk, np.arange(len(row)), row), axis, wanted
            )
        tvm_cases.assert_close(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16"])
def test_nearest_elements_of_drawn_sizes(dtype: str, context: BuildContext) -> None:
    """Against whole numbers, and of every type.

    PyTorch rounds the scale: of 26 rows made 22 its row 11 is row 12, in float64 as well.
    """
    rng = np.random.default_rng()
    sizes = [(rng.integers(1, 60, 2), rng.integers(1, 120, 2)) for _ in range(6)]
    sizes.append((np.array([26, 52]), np.array([22, 22])))
    inputs = [(rng.standard_normal((2, 3, *before)) * 50).astype(dtype) for before, _ in sizes]
    how = {"layout": "NCHW", **_NEAREST, **_CORNER, "rounding_method": "floor"}

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        resized = [
            emit(op.image.resize2d(x, tuple(map(int, after)), **how))
            for x, (_, after) in zip(args, sizes, strict=True)
        ]
        return emit(relax.Tuple(resized))

    results = tvm_cases.run(tvm_cases.partition(body, inputs), inputs, context)
    for got, data, (_, after) in zip(results, inputs, sizes, strict=True):
        rows, columns = (
            np.arange(size) * extent // size
            for extent, size in zip(data.shape[2:], after, strict=True)
        )
        np.testing.assert_array_equal(got, data[:, :, rows][..., columns])
