"""Look-ups, products and scatters with constants that say that they take less, beside NumPy's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.backends.tvm.cuda.affine import place_of
from collage.testing.graphs import Emit, graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

R = relax.op


def _indices(kind: str) -> list[np.ndarray]:
    steps = np.arange(5)[:, None] * 2 + np.arange(3)
    return {
        "windows": [steps[:, None, :, None], steps[None, :, None, :]],
        "strided": [np.arange(0, 11, 2)],
        "backward": [np.arange(10, -1, -1)],
        "negative": [np.arange(-11, 0)],
        "tiles": [(np.arange(4)[:, None] * 3 + np.zeros((4, 2), np.int64)).reshape(-1)],
        "one": [np.array([7])],
        "irregular": [np.array([0, 1, 3, 4, 9])],
    }[kind]


@pytest.mark.parametrize(
    "kind", ["windows", "strided", "backward", "negative", "tiles", "one", "irregular"]
)
def test_known_places_are_numpys(kind: str, context: BuildContext, tmp_path: Path) -> None:
    """Moved before and behind: one kernel, unless a table of places is looked up."""
    indices = _indices(kind)
    x = np.random.default_rng().standard_normal((11, 11, 6)).astype(np.float32)

    def body(emit: Emit, given: relax.Var) -> relax.Expr:
        padded = emit(R.nn.pad(given, [1, 0, 1, 0, 0, 0]))
        constants = relax.Tuple([relax.const(each.astype("int64")) for each in indices])
        found = emit(R.index_tensor(padded, constants))
        return emit(R.permute_dims(found))

    mod = graph([(10, 10, 6)], body)
    given = x[1:, 1:]
    padded = np.pad(given, ((1, 0), (1, 0), (0, 0)))
    lowered = lower(mod, context)
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(given)
    np.testing.assert_array_equal(found, padded[tuple(indices)].T)
    if kind != "irregular":
        assert len(kernels(lowered)) == 1


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", ["pools", "clipped", "irregular"])
def test_known_rows_are_numpys(kind: str, axis: int, context: BuildContext, tmp_path: Path) -> None:
    windows = np.add.outer(np.add.outer(np.arange(2) * 6, np.arange(3) * 2), np.arange(2))
    places = {
        "pools": windows.reshape(-1),
        "clipped": np.arange(0, 40, 4).reshape(2, 5),
        "irregular": np.array([3, 1, 1, 11, 0]),
    }[kind]
    x = np.random.default_rng().standard_normal((12, 12, 12)).astype(np.float32)

    def body(emit: Emit, given: relax.Var) -> relax.Expr:
        indices = relax.const(places.astype("int64"))
        return emit(R.take(given, indices, axis, mode="clip"))

    lowered = lower(graph([x.shape], body), context)
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    np.testing.assert_array_equal(found, np.take(x, places, axis, mode="clip"))


def test_regular_places_are_found_whatever_their_steps() -> None:
    rng = np.random.default_rng()
    for _ in range(200):
        extents = rng.integers(1, 5, rng.integers(1, 4))
        strides = rng.integers(-3, 9, len(extents))
        array = np.zeros((), np.int64) + rng.integers(0, 9)
        for extent, stride in zip(extents, strides, strict=True):
            array = np.add.outer(array, stride * np.arange(extent))
        split = int(rng.integers(0, array.ndim + 1))
        rows = int(np.prod(array.shape[:split]))
        array = array.reshape(rows, -1)
        place = place_of(array)
        if place is None:
            # Steps that continue each other by chance read as longer ones that end unevenly.
            continue
        for at in np.ndindex(*array.shape):
            found = place.at([tvm.tirx.const(i, "int64") for i in at])
            assert int(tvm.sym.Analyzer().simplify(found)) == array[at]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_products_with_bands_are_numpys(
    side: str, dtype: str, context: BuildContext, tmp_path: Path
) -> None:
    rng = np.random.default_rng()
    matrix = np.zeros((33, 90), np.float32)
    for row in range(33):
        count = rng.integers(0, 6)
        first = int(row * (90 - count) / 32)
        matrix[row, first : first + count] = rng.standard_normal(count)
    matrix = matrix.astype(dtype)
    x = rng.standard_normal((2, 5, 90) if side == "right" else (2, 90, 7)).astype(dtype)

    def body(emit: Emit, given: relax.Var) -> relax.Expr:
        if side == "right":
            return emit(R.matmul(given, relax.const(matrix.T.copy())))
        return emit(R.matmul(relax.const(matrix), given))

    wide = matrix.astype(np.float64)
    given = x.astype(np.float64)
    wanted = given @ wide.T if side == "right" else wide @ given
    lowered = lower(graph([x.shape], body, dtype), context)
    assert any("banded" in name for name in kernels(lowered))
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    tolerance = 1e-6 if dtype == "float32" else 1e-3
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


def test_a_resize_with_a_filter_is_two_kernels(context: BuildContext, tmp_path: Path) -> None:
    rng = np.random.default_rng()
    matrix = np.zeros((24, 48), np.float32)
    for row in range(24):
        matrix[row, max(0, 2 * row - 1) : 2 * row + 3] = rng.random(min(4, 2 * row + 3))[
            : len(matrix[row, max(0, 2 * row - 1) : 2 * row + 3])
        ]
    x = rng.standard_normal((1, 3, 48, 48)).astype(np.float16)

    def body(emit: Emit, given: relax.Var) -> relax.Expr:
        wide = emit(R.astype(given, "float32"))
        wide = emit(R.matmul(wide, relax.const(matrix.T.copy())))
        return emit(R.astype(emit(R.matmul(relax.const(matrix), wide)), "float16"))

    lowered = lower(graph([x.shape], body, "float16"), context)
    assert len(kernels(lowered)) == 2
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    wanted = matrix.astype(np.float64) @ x.astype(np.float64) @ matrix.T.astype(np.float64)
    assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("uniform", [True, False])
def test_rows_that_are_put_are_numpys(uniform: bool, context: BuildContext, tmp_path: Path) -> None:
    """Several are put at one place; of different rows the last one stays."""
    rng = np.random.default_rng()
    x = rng.standard_normal((40, 9)).astype(np.float32)
    rows = rng.integers(0, 40, (64, 1))
    updates = np.full((64, 9), 2.5, np.float32)
    if not uniform:
        updates = rng.standard_normal((64, 9)).astype(np.float32)

    def body(emit: Emit, given: relax.Var) -> relax.Expr:
        ids = relax.const(rows.astype("int64"))
        return emit(R.scatter_nd(given, ids, relax.const(updates), "update"))

    lowered = lower(graph([x.shape], body), context)
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    wanted = x.copy()
    for row, update in zip(rows[:, 0], updates, strict=True):
        wanted[row] = update
    np.testing.assert_array_equal(found, wanted)
