"""The cuBLAS backend's planner against NumPy: a product of views, computed by columns in memory."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.cublas.problem import (
    Epilogue,
    Problem,
    Product,
    derive,
    matrix_views,
)
from collage.backends.cublas.timer import TEMPLATES
from collage.backends.relax.calls.strided_views import View

Array = NDArray[np.float64]


def by_columns(memory: Array, rows: int, columns: int, leading: int, offset: int) -> Array:
    """The column-major matrix at an offset, as BLAS sees it; reading out of bounds fails."""
    assert leading >= rows, "BLAS refuses such a leading dimension"
    index = offset + np.arange(rows)[:, None] + leading * np.arange(columns)[None, :]
    return memory[index]


def cublaslt(p: Problem, a: Array, b: Array, bias: Array | None, c: Array | None) -> Array:
    """``cublasLtMatmul`` on flat memory, from its manual; what it leaves alone stays NaN."""
    d = np.full(max(p.stride_d * (p.batch - 1), 0) + p.ldd * (p.n - 1) + p.m, np.nan)
    for index in range(p.batch):
        stored_a = (p.k, p.m) if p.transpose_a else (p.m, p.k)
        stored_b = (p.n, p.k) if p.transpose_b else (p.k, p.n)
        left = by_columns(a, *stored_a, p.lda, index * p.stride_a)
        right = by_columns(b, *stored_b, p.ldb, index * p.stride_b)
        left = left.T if p.transpose_a else left
        right = right.T if p.transpose_b else right
        value = left @ right
        if p.residual:
            assert c is not None
            value = value + by_columns(c, p.m, p.n, p.ldd, index * p.stride_d)
        if p.bias:
            assert bias is not None and bias.shape == (p.m,)
            value = value + bias[:, None]
        value = np.maximum(value, 0) if p.relu else value
        place = np.arange(p.m)[:, None] + p.ldd * np.arange(p.n)[None, :] + index * p.stride_d
        assert np.isnan(d[place]).all(), "a result is written twice"
        d[place] = value
    return d


def plan(
    lhs: View, rhs: View, result: View | None = None, epilogue: Epilogue | None = None
) -> Product:
    return derive(
        *matrix_views(lhs, rhs, result),
        epilogue or Epilogue(),
        dtype="float32",
        allow_tf32=False,
        workspace_limit=0,
    )


def run(
    product: Product,
    left: Array,
    right: Array,
    bias: Array | None = None,
    residual: Array | None = None,
) -> Array:
    """The flat result of a planned product of dense arrays."""
    a, b = (left, right) if product.lhs_is_a else (right, left)
    c = None if residual is None else residual.ravel()
    return cublaslt(product.problem, a.ravel(), b.ravel(), bias, c)


def permuted(array: Array, axes: tuple[int, ...] | None) -> tuple[Array, View]:
    """A dense array seen through a permutation, in NumPy and as a view."""
    view = View.dense(array.shape)
    return (array, view) if axes is None else (array.transpose(axes), view.permuted(axes))


extents = st.integers(1, 4)


@st.composite
def products(draw: st.DrawFn) -> tuple[Array, Array, tuple[int, ...], tuple[int, ...]]:
    """Dense operands and the axes that turn them into operands of a batched product."""
    batch = draw(st.lists(extents, max_size=3))
    m, k, n = draw(extents), draw(extents), draw(extents)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays, orders = [], []
    for matrix in ((m, k), (k, n)):
        own = [extent if draw(st.booleans()) else 1 for extent in batch]
        own = own[draw(st.integers(0, len(own))) :]
        wanted = (*own, *matrix)
        axes = tuple(draw(st.permutations(range(len(wanted)))))
        stored = tuple(wanted[axes.index(i)] for i in range(len(wanted)))
        arrays.append(rng.standard_normal(stored))
        orders.append(axes)
    return arrays[0], arrays[1], orders[0], orders[1]


@settings(max_examples=400, deadline=None)
@given(data=products(), permute_result=st.booleans(), seed=st.randoms(use_true_random=False))
def test_any_accepted_product_is_computed_right(data, permute_result, seed) -> None:  # type: ignore[no-untyped-def]
    left, right, left_axes, right_axes = data
    lhs, lhs_view = permuted(left, left_axes)
    rhs, rhs_view = permuted(right, right_axes)
    expected = lhs @ rhs
    order = list(range(expected.ndim))
    if permute_result:
        seed.shuffle(order)
    stored = expected.transpose(order)
    result = View.dense(stored.shape).permuted([order.index(i) for i in range(len(order))])
    try:
        product = plan(lhs_view, rhs_view, result)
    except UnsupportedProblemError as err:
        assert "stride" in str(err) or "contiguous" in str(err)
        return
    np.testing.assert_allclose(run(product, left, right), stored.ravel(), atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    batch=st.lists(extents, max_size=3),
    sizes=st.tuples(extents, extents, st.integers(2, 5)),
    shared=st.sampled_from(["neither", "lhs", "rhs"]),
    transposed=st.tuples(st.booleans(), st.booleans()),
    residual=st.booleans(),
    relu=st.booleans(),
)
def test_batches_with_an_epilogue_are_always_accepted(  # type: ignore[no-untyped-def]
    batch, sizes, shared, transposed, residual, relu
) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    shapes = {
        "lhs": (*([] if shared == "lhs" else batch), m, k),
        "rhs": (*([] if shared == "rhs" else batch), k, n),
    }
    operands, views, arrays = [], [], []
    for name, flip in zip(("lhs", "rhs"), transposed, strict=True):
        dense = rng.standard_normal(shapes[name])
        axes = (*range(dense.ndim - 2), dense.ndim - 1, dense.ndim - 2)
        stored = np.ascontiguousarray(dense.transpose(axes)) if flip else dense
        array, view = permuted(stored, axes if flip else None)
        operands.append(array)
        views.append(view)
        arrays.append(stored)
    bias = rng.standard_normal(n)
    expected = operands[0] @ operands[1] + bias
    addend = rng.standard_normal(expected.shape) if residual else None
    expected = expected + (addend if addend is not None else 0)
    expected = np.maximum(expected, 0) if relu else expected
    epilogue = Epilogue(bias=True, residual=residual, activation="relu" if relu else "")
    product = plan(*views, epilogue=epilogue)
    actual = run(product, *arrays, bias=bias, residual=addend)
    np.testing.assert_allclose(actual, expected.ravel(), atol=1e-12)


def problem(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Problem:
    return plan(View.dense(lhs), View.dense(rhs)).problem


def test_a_dense_layer_is_one_product_with_columns_first() -> None:
    p = problem((2, 17, 64), (64, 96))
    assert (p.m, p.n, p.k, p.batch) == (96, 34, 64, 1)
    assert (p.transpose_a, p.transpose_b) == (False, False)
    assert (p.lda, p.ldb, p.ldd) == (96, 64, 96)


def test_transposed_weights_become_a_flag() -> None:
    p = plan(View.dense((17, 64)), View.dense((96, 64)).transposed()).problem
    assert (p.m, p.n, p.k, p.transpose_a, p.lda) == (96, 17, 64, True, 64)


def test_a_batch_has_strides_and_a_shared_operand_none() -> None:
    p = problem((6, 33, 40), (6, 40, 24))
    assert (p.batch, p.stride_a, p.stride_b, p.stride_d) == (6, 960, 1320, 792)
    p = problem((33, 40), (6, 40, 24))
    assert (p.batch, p.stride_a, p.stride_b, p.stride_d) == (6, 960, 0, 792)


def test_batch_axes_merge_where_one_stride_describes_them() -> None:
    assert problem((2, 3, 5, 9), (2, 3, 9, 4)).batch == 6
    assert problem((1, 4, 5, 9), (4, 9, 4)).batch == 4
    with pytest.raises(UnsupportedProblemError, match="one stride"):
        problem((2, 1, 5, 9), (1, 3, 9, 4))


def test_attention_heads_of_one_sequence_need_no_copy() -> None:
    """(1, tokens, heads, size) behind the permutations of attention: one batch of heads."""
    query = View.dense((1, 24, 4, 40)).permuted([0, 2, 1, 3])
    key = View.dense((1, 16, 4, 40)).permuted([0, 2, 3, 1])
    p = plan(query, key).problem
    assert (p.batch, p.m, p.n, p.k) == (4, 16, 24, 40)
    assert (p.transpose_a, p.lda, p.stride_a) == (True, 160, 40)
    assert (p.transpose_b, p.ldb, p.stride_b) == (False, 160, 40)
    two = View.dense((2, 24, 4, 40)).permuted([0, 2, 1, 3])
    with pytest.raises(UnsupportedProblemError, match="one stride"):
        plan(two, View.dense((2, 16, 4, 40)).permuted([0, 2, 3, 1]))


def test_a_lone_column_is_computed_as_a_row_of_full_length() -> None:
    product = plan(View.dense((50, 70)), View.dense((70, 1)))
    p = product.problem
    assert product.lhs_is_a
    assert (p.m, p.n, p.ldd) == (50, 1, 50)


def test_a_transposed_result_takes_no_bias() -> None:
    result = View.dense((7, 5)).transposed()
    lhs, rhs = View.dense((5, 9)), View.dense((9, 7))
    assert plan(lhs, rhs, result).lhs_is_a
    with pytest.raises(UnsupportedProblemError, match="bias"):
        plan(lhs, rhs, result, Epilogue(bias=True))


def test_vectors_and_scattered_matrices_are_refused() -> None:
    with pytest.raises(UnsupportedProblemError, match="vector"):
        problem((9,), (9, 4))
    scattered = View.dense((7, 3, 2)).permuted([2, 0, 1])
    with pytest.raises(UnsupportedProblemError, match="left operand has neither rows nor columns"):
        plan(scattered, View.dense((2, 3, 4)))


def test_extents_of_more_than_32_bits_are_refused() -> None:
    with pytest.raises(UnsupportedProblemError, match="32 bits"):
        problem((2**31, 8), (8, 16))


def test_fields_are_integers_in_the_order_of_the_structure() -> None:
    text = (TEMPLATES / "cublas_problem.h").read_text()
    structure = text[text.index("typedef struct {") : text.index("} collage_cublas_problem;")]
    declared = [
        name.strip()
        for names in re.findall(r"^  int64_t ([\w, ]+);", structure, re.MULTILINE)
        for name in names.split(",")
    ]
    fields = replace(problem((3, 4), (4, 5)), bias=True).fields()
    assert list(fields) == declared
    assert all(type(value) is int for value in fields.values())
    assert (fields["m"], fields["n"], fields["k"], fields["bias"]) == (5, 3, 4, 1)
