"""Fourier transforms of this project's own on a GPU: their source, under a model of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.backends.tvm.common.fourier import recognized
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower
from tests.backends_tests.tvm.test_fourier import KINDS, matrix_of, wanted

pytestmark = pytest.mark.cuda


def transformed(
    x: np.ndarray, matrix: np.ndarray, folder: Path, context: BuildContext
) -> np.ndarray:
    dtype = str(x.dtype)
    constant = relax.const(matrix.astype(dtype), dtype)
    mod = graph([x.shape], lambda emit, x: emit(op.matmul(x, constant)), dtype)
    lowered = lower(mod, context)
    assert all(name.startswith("fourier") for name in kernels(lowered))
    (found,) = HostProgram(lowered, cuda_target(), folder)(x)
    return np.asarray(found)


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        *(("complex", 45), ("from_real", 45), ("to_real", 45), ("inverse", 4 * 27 * 7)),
        *(("from_real", 2 * 16 * 11), ("to_real", 2 * 13 * 25), ("complex", 8 * 9)),
        *(("from_real", 1025), ("inverse", 127), ("to_real", 4096), ("complex", 2048)),
    ],
)
def test_transforms_of_rows_are_numpys(
    kind: str, length: int, tmp_path: Path, context: BuildContext
) -> None:
    """All factors that are written out, large ones, one row of a block and several."""
    matrix = matrix_of(kind, length)
    lead = (9, 67) if length < 100 else (2, 1)
    x = np.random.default_rng().standard_normal((*lead, len(matrix))).astype(np.float32)
    got, exact = transformed(x, matrix, tmp_path, context), wanted(kind, length, x)
    assert got.shape == exact.shape
    error = np.sqrt(np.square(got - exact).mean()) / np.sqrt(np.square(exact).mean())
    assert error < 3e-7


@pytest.mark.parametrize(
    ("kind", "dtype"), [("complex", "float16"), ("from_real", "bfloat16"), ("to_real", "float16")]
)
def test_short_numbers_are_rounded_once(
    kind: str, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    matrix = matrix_of(kind, 96)
    x = np.random.default_rng().standard_normal((300, len(matrix))).astype(dtype)
    got = transformed(x, matrix, tmp_path, context).astype(np.float64)
    exact = wanted(kind, 96, x.astype(np.float64))
    digit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_array_less(np.abs(got - exact), 1.15 * digit * np.abs(exact) + 2e-6)


@pytest.mark.parametrize("length", [128, 45])
def test_a_window_behind_a_transform_is_part_of_it(
    length: int, tmp_path: Path, context: BuildContext
) -> None:
    window = np.hanning(length)
    matrix = matrix_of("to_real", length) * window
    x = np.random.default_rng().standard_normal((40, len(matrix))).astype(np.float32)
    got = transformed(x, matrix, tmp_path, context)
    np.testing.assert_allclose(got, wanted("to_real", length, x) * window, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_rounded_matrices_only_transforms_are_taken_for_one(dtype: str) -> None:
    digit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]

    def short(values: Any) -> Any:
        return values.astype(dtype).astype(np.float64)

    for kind in KINDS:
        matrix = matrix_of(kind, 96).astype(np.float64)
        found = recognized(short(matrix * 0.3), digit)
        assert found is not None and found.length == 96
        exact = recognized(matrix * -0.3)
        assert exact is not None
        found = recognized(short(matrix * -0.3), digit)
        assert found is not None and abs(found.scale / exact.scale - 1) < digit / 4
        spoilt = short(matrix)
        spoilt[3, 5] *= 1 + 4 * digit
        assert recognized(spoilt, digit) is None
    assert recognized(short(np.eye(64)), digit) is None
