"""The planner of OpenBLAS's products, executed in numpy on random views."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.openblas.problem import Matrix, Problem, plan
from collage.backends.relax.calls.strided_views import View, matmul_views

EXTENTS = st.integers(1, 4)


@st.composite
def products(draw: st.DrawFn) -> tuple[View, View, View | None]:
    """Two operands and maybe a result, each a permuted view of a dense tensor."""
    batch = draw(st.lists(EXTENTS, max_size=3))
    rows, inner, columns = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)

    def partial(full: list[int]) -> list[int]:
        kept = [draw(st.sampled_from([1, extent])) for extent in full]
        return kept[draw(st.integers(0, len(full))) :]

    def permuted(shape: list[int]) -> View:
        axes = draw(st.permutations(range(len(shape))))
        source = [0] * len(shape)
        for position, axis in enumerate(axes):
            source[axis] = shape[position]
        return View.dense(source).permuted(axes)

    lhs = permuted([*partial(batch), rows, inner])
    rhs = permuted([*partial(batch), inner, columns])
    if not draw(st.booleans()):
        return lhs, rhs, None
    reached = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    return lhs, rhs, permuted([*reached, rows, columns])


def strided(buffer: np.ndarray, view: View) -> np.ndarray:
    return as_strided(buffer, view.shape, [stride * buffer.itemsize for stride in view.strides])


def matrix(buffer: np.ndarray, how: Matrix, rows: int, columns: int, offset: int) -> np.ndarray:
    """What BLAS sees from ``offset`` on, with BLAS's own rule for leading dimensions checked."""
    strides = (1, how.leading) if how.transposed else (how.leading, 1)
    assert how.leading >= (rows if how.transposed else columns)
    size = buffer.itemsize
    return as_strided(buffer[offset:], (rows, columns), [stride * size for stride in strides])


def execute(problem: Problem, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    if problem.swapped:
        a, b = b, a
    for index in itertools.product(*map(range, problem.batch)):
        offsets = [
            sum(i * s for i, s in zip(index, how.batch_strides, strict=True))
            for how in (problem.a, problem.b, problem.c)
        ]
        left = matrix(a, problem.a, problem.rows, problem.inner, offsets[0])
        right = matrix(b, problem.b, problem.inner, problem.columns, offsets[1])
        matrix(c, problem.c, problem.rows, problem.columns, offsets[2])[...] = left @ right


def contiguous_one_way(view: View) -> bool:
    rows, columns = view.shape[-2:]
    return 1 in (rows, columns, *view.strides[-2:])


@settings(deadline=None, max_examples=400)
@given(products())
def test_plans_compute_the_product(product: tuple[View, View, View | None]) -> None:
    views = matmul_views(*product)
    try:
        problem = plan(*views)
    except UnsupportedProblemError:
        assert not all(contiguous_one_way(view) for view in views)
        return
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(math.prod(view.shape)) for view in product[:2])
    c = np.full(math.prod(views[2].shape), np.nan)
    execute(problem, a, b, c)
    expected = np.matmul(strided(a, product[0]), strided(b, product[1]))
    np.testing.assert_allclose(strided(c, views[2]), expected, rtol=1e-12)


@settings(deadline=None)
@given(st.lists(EXTENTS, max_size=3), EXTENTS, EXTENTS, EXTENTS)
def test_rows_of_a_dense_batch_with_shared_weights_are_one_product(
    batch: list[int], rows: int, inner: int, columns: int
) -> None:
    problem = plan(*matmul_views(View.dense([*batch, rows, inner]), View.dense([inner, columns])))
    assert problem.batch == ()
    expected = (math.prod(batch) * rows, columns)
    assert (problem.rows, problem.columns) in (expected, expected[::-1])


@pytest.mark.parametrize("rows", [1, 7])
def test_single_column_becomes_a_single_row(rows: int) -> None:
    problem = plan(*matmul_views(View.dense([rows, 5]), View.dense([5, 1])))
    assert problem.rows == 1
    assert problem.columns == rows


def test_sizes_beyond_blas_are_refused() -> None:
    huge = 2**31
    with pytest.raises(UnsupportedProblemError, match="32-bit"):
        plan(*matmul_views(View.dense([huge, 2]), View.dense([2, 2])))
    with pytest.raises(UnsupportedProblemError, match="32-bit"):
        plan(*matmul_views(View.dense([2, 2, huge]).permuted([0, 2, 1]), View.dense([2, 2, 1])))


def test_too_many_batch_axes_are_refused() -> None:
    left = View.dense([2, 1] * 4 + [3, 4])
    right = View.dense([1, 2] * 4 + [4, 5])
    with pytest.raises(UnsupportedProblemError, match="8 batch axes; at most 6"):
        plan(*matmul_views(left, right))
