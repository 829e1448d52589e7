"""Scans, sorts and searches of this project's own on a GPU: their source, under a model of threads.

With ties, infinities, zeros of both signs and what is no number, along the last axis and others, in
one block a line and in many.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import op

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.backends.relax.kept_whole.order_statistics import (
    MEDIAN,
    MODE,
    NUMBERS_MEDIAN,
    order_statistic,
)
from collage.backends.relax.kept_whole.running import running_extreme, running_logsumexp
from collage.backends.relax.kept_whole.search import searchsorted
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower
from tests.backends_tests.tvm.test_order_statistics import expected_statistic
from tests.backends_tests.tvm.test_running import wanted

pytestmark = pytest.mark.cuda

_LINES = [
    ((3, 40), 1, "float32"),
    ((64, 9), 1, "float16"),
    ((3, 700), 1, "bfloat16"),
    ((300, 6), 0, "float16"),
    ((2, 40, 35), 1, "int64"),
    ((1, 17000), 1, "float16"),
    ((16500, 2), 0, "float64"),
    ((1,), 0, "int8"),
]
"""Several lines in a warp, one, a block for each; side by side, and in chunks."""


def drawn(shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng()
    x = rng.integers(-6, 7, shape).astype(dtype)
    if "float" in dtype:
        for value in (math.inf, -math.inf, math.nan, -0.0):
            x[rng.random(shape) < 0.02] = value
    return x


def wide_type(dtype: str) -> str:
    return "int64" if "int" in dtype else "float64"


def run(body: Any, inputs: list[Any], name: str, folder: Path, context: BuildContext) -> list[Any]:
    mod = graph([x.shape for x in inputs], body, [str(x.dtype) for x in inputs])
    lowered = lower(mod, context)
    assert all(kernel.startswith(name) for kernel in kernels(lowered))
    return HostProgram(lowered, cuda_target(), folder)(*inputs)


@pytest.mark.parametrize(("shape", "axis", "dtype"), _LINES)
def test_running_extremes_are_those_of_a_loop(
    shape: tuple[int, ...], axis: int, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    x = drawn(shape, dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        pairs = [emit(running_extreme(x, axis, largest)) for largest in (True, False)]
        return relax.Tuple([emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in (0, 1)])

    found = run(body, [x], "running", tmp_path, context)
    for place, largest in ((0, True), (2, False)):
        values, places = wanted(x, axis, largest)
        same = found[place].astype("float64"), values.astype("float64")
        np.testing.assert_array_equal(*same)
        np.testing.assert_array_equal(*(np.signbit(each) for each in same))
        np.testing.assert_array_equal(found[place + 1], places)


@pytest.mark.parametrize(("shape", "axis", "dtype"), _LINES)
def test_running_sums_and_products_are_numpys(
    shape: tuple[int, ...], axis: int, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    whole = "int" in dtype
    drawn = rng.integers(-9, 10, shape) if whole else rng.uniform(0.5, 1.5, shape)
    x, y = drawn.astype(dtype), (drawn if whole else 2.0 ** (drawn - 1) % 1.02).astype(dtype)

    def body(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        sums = [op.cumsum(x, axis), op.cumsum(x, axis, exclusive=True), op.cumsum(x, None)]
        return relax.Tuple([emit(each) for each in (*sums, op.cumprod(y, axis))])

    sums, exclusive, flat, products = run(body, [x, y], "running", tmp_path, context)
    wide = [each.astype(wide_type(dtype)) for each in (x, y)]
    rtol = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-6, "float64": 1e-12}.get(dtype, 0.0)

    def check(found: Any, expected: Any) -> None:
        # As the type has it, overflows of whole numbers and infinities of short ones too.
        with np.errstate(over="ignore"):
            rounded = expected.astype(dtype)
        np.testing.assert_allclose(
            found.astype(wide[0].dtype), rounded.astype(wide[0].dtype), rtol, rtol
        )

    check(sums, wide[0].cumsum(axis))
    check(exclusive, wide[0].cumsum(axis) - wide[0])
    check(flat.reshape(-1), wide[0].reshape(-1).cumsum())
    check(products, wide[1].cumprod(axis))


@pytest.mark.parametrize(("shape", "axis", "dtype"), _LINES[:4])
def test_running_sums_of_exponentials_are_numpys(
    shape: tuple[int, ...], axis: int, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    x = drawn(shape, dtype)
    wide = x.astype("float64")
    wide[np.isnan(wide)] = 0.5
    wide[tuple([0] * len(shape))] = -math.inf
    x = wide.astype(dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        return emit(running_logsumexp(x, axis))

    (found,) = run(body, [x], "running", tmp_path, context)
    expected = np.logaddexp.accumulate(wide, axis)
    rtol = {"float16": 1e-3, "bfloat16": 4e-3}.get(dtype, 2e-6)
    np.testing.assert_allclose(found.astype("float64"), expected, rtol, rtol)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "taken"),
    [
        ((2, 700), 1, "float16", 5),
        ((150, 3), 0, "float32", 40),
        ((2, 131, 3), 1, "int64", 7),
        ((1, 6000), 1, "bfloat16", 300),
        ((2, 129), 1, "float64", 129),
        ((4, 140), 1, "int8", 3),
    ],
)
def test_sorts_keep_the_order_of_equals_and_put_what_is_no_number_last(
    shape: tuple[int, ...],
    axis: int,
    dtype: str,
    taken: int,
    tmp_path: Path,
    context: BuildContext,
) -> None:
    x = drawn(shape, dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        best = emit(op.topk(x, taken, axis, "both", True, "int64"))
        parts = [emit(relax.TupleGetItem(best, i)) for i in (0, 1)]
        sorts = [op.sort(x, axis, True), op.argsort(x, axis, False, "int32")]
        return relax.Tuple([*parts, *(emit(each) for each in sorts)])

    largest, at, falling, rising = run(body, [x], "sorted", tmp_path, context)
    down = order(x, axis, descending=True)
    first = np.take(down, range(taken), axis)
    np.testing.assert_array_equal(at, first)
    x, largest, falling = (each.astype(wide_type(dtype)) for each in (x, largest, falling))
    np.testing.assert_array_equal(largest, np.take_along_axis(x, first, axis))
    np.testing.assert_array_equal(falling, np.take_along_axis(x, down, axis))
    np.testing.assert_array_equal(rising, order(x, axis, descending=False))


@pytest.mark.parametrize(
    ("length", "dtype"), [(20000, "float32"), (20000, "float16"), (70000, "bfloat16")]
)
def test_the_first_of_a_long_line_are_those_of_its_chunks(
    length: int, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    x = drawn((2, length), dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        best = emit(op.topk(x, 60, 1, "both", False, "int64"))
        return relax.Tuple([emit(relax.TupleGetItem(best, i)) for i in (0, 1)])

    smallest, at = run(body, [x], "", tmp_path, context)
    expected = order(x, 1, descending=False)[:, :60]
    np.testing.assert_array_equal(at, expected)
    x, smallest = (each.astype(wide_type(dtype)) for each in (x, smallest))
    np.testing.assert_array_equal(smallest, np.take_along_axis(x, expected, 1))


def order(x: Any, axis: int, *, descending: bool) -> Any:
    """Stable; what is no number is the largest."""
    lines = np.moveaxis(x.astype(wide_type(str(x.dtype))), axis, -1)
    places = np.broadcast_to(np.arange(lines.shape[-1]), lines.shape)
    none = np.isnan(lines)
    keys = (places, -lines, ~none) if descending else (places, lines, none)
    return np.moveaxis(np.lexsort(keys, axis=-1), -1, axis)


@pytest.mark.parametrize(
    ("rows", "asked", "dtype"),
    [
        ((17,), (3, 50), "float16"),
        ((300,), (1000,), "float32"),
        ((5, 64), (5, 41), "bfloat16"),
        ((2, 3, 1), (2, 3, 4), "int64"),
    ],
)
def test_places_in_sorted_rows_are_numpys(
    rows: tuple[int, ...], asked: tuple[int, ...], dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    sequence = np.sort(rng.integers(-20, 20, rows), -1).astype(dtype)
    values = rng.integers(-22, 23, asked).astype(dtype)
    if "float" in dtype:
        for value in (math.inf, -math.inf, math.nan):
            values[rng.random(asked) < 0.1] = value

    def body(emit: Any, sequence: relax.Var, values: relax.Var) -> relax.Expr:
        sides = ((False, "int32"), (True, "int64"))
        found = [searchsorted(sequence, values, right=one, dtype=kind) for one, kind in sides]
        return relax.Tuple([emit(each) for each in found])

    found = run(body, [sequence, values], "searchsorted", tmp_path, context)
    wide = [each.astype("float64") for each in (sequence, values)]
    rows_of = np.broadcast_to(wide[0], (*asked[:-1], rows[-1])).reshape(-1, rows[-1])
    pairs = list(zip(rows_of, wide[1].reshape(-1, asked[-1]), strict=True))
    for places, side in zip(found, ("left", "right"), strict=True):
        expected = np.stack([np.searchsorted(row, some, side) for row, some in pairs])
        np.testing.assert_array_equal(places, expected.reshape(asked))


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((3, 700), 1, "float16"),
        ((150, 3), 0, "float32"),
        ((2, 131, 3), 1, "int64"),
        ((3, 12), 1, "bfloat16"),
        ((2, 6000), 1, "float32"),
        ((5, 1), 1, "float64"),
    ],
)
def test_medians_and_modes_are_those_of_the_sorted_line(
    shape: tuple[int, ...], axis: int, dtype: str, tmp_path: Path, context: BuildContext
) -> None:
    x = drawn(shape, dtype)
    # A line without numbers, one without others.
    np.moveaxis(x, axis, -1)[..., 0, :] = math.nan if "float" in dtype else 7
    np.moveaxis(x, axis, -1)[..., -1, :] = np.arange(shape[axis]) // 3
    ways = (MEDIAN, NUMBERS_MEDIAN, MODE)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        pairs = [emit(order_statistic(x, which, axis)) for which in ways]
        return relax.Tuple([emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in (0, 1)])

    found = run(body, [x], "order_statistic", tmp_path, context)
    for which, value, place in zip(ways, found[::2], found[1::2], strict=True):
        expected = expected_statistic(x.astype(wide_type(dtype)), which, axis)
        np.testing.assert_array_equal(place, expected)
        np.testing.assert_array_equal(
            *(
                each.astype(wide_type(dtype))
                for each in (value, np.take_along_axis(x, expected, axis))
            )
        )


def test_lines_too_long_for_a_block_are_sorted_by_others(context: BuildContext) -> None:
    """Of any length, and with the simplest schedule, too."""

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        pairs = [emit(order_statistic(x, which, 1)) for which in (MEDIAN, NUMBERS_MEDIAN, MODE)]
        return relax.Tuple([emit(relax.TupleGetItem(pair, i)) for pair in pairs for i in (0, 1)])

    lowered = lower(graph([(2, 30000)], body, "float32"), context)
    assert any("argsort" in kernel for kernel in kernels(lowered))
    assert kernels(lower(graph([(2, 300)], body, "float32"), context, schedule="plain"))


def test_a_block_gets_the_memory_that_it_sorts_in(context: BuildContext) -> None:
    """TVM saw that the place of one byte was used, and launched blocks with so many."""
    lowered = lower(graph([(64, 1000)], lambda _, x: op.sort(x, 1), "float16"), context)
    (wanted_bytes,) = _shared_bytes(lowered)
    compact = s_tir.transform.CompactBufferAllocation()(
        s_tir.transform.ConvertBlocksToOpaque()(lowered)
    )
    assert wanted_bytes >= 1000 * 4
    assert _shared_bytes(compact) == [wanted_bytes]


def _shared_bytes(mod: tvm.IRModule) -> list[int]:
    """Extents of what lies in dynamic shared memory."""
    found: list[int] = []

    def note(stmt: tirx.AllocBuffer) -> None:
        if stmt.buffer.scope() == "shared.dyn":
            found.append(math.prod(int(extent) for extent in stmt.buffer.shape))

    for func in kernels(mod).values():
        tvm_ffi.structural_walk(func.body, [(tirx.AllocBuffer, note)])
    return found
