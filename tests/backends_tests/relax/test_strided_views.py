"""The algebra of strided views against numpy's own strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from tvm import relax

from collage.backends.contract.errors import UnsupportedProblemError
from collage.backends.relax.calls.strided_views import (
    View,
    fold_batch_into_rows,
    matmul_views,
    merge_batch_axes,
    operand_view,
    result_view,
)

Array = NDArray[np.float64]
EXTENTS = st.integers(1, 4)


def view_of(array: Array) -> View:
    """What numpy says of an array."""
    return View(array.shape, tuple(stride // array.itemsize for stride in array.strides))


def seen(memory: Array, view: View) -> Array:
    """An array's memory through a view."""
    strides = [stride * memory.itemsize for stride in view.strides]
    return as_strided(memory.ravel(), view.shape, strides)


def numbered(shape: tuple[int, ...]) -> Array:
    """A dense array whose elements differ."""
    return np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)


@st.composite
def permuted_arrays(draw: st.DrawFn, wanted: tuple[int, ...]) -> Array:
    """An array of a shape whose memory is in the order of other axes."""
    axes = draw(st.permutations(range(len(wanted))))
    stored = tuple(wanted[axes.index(axis)] for axis in range(len(wanted)))
    return numbered(stored).transpose(axes)


@st.composite
def arrays(draw: st.DrawFn, least: int = 0) -> Array:
    """A permuted array of up to five axes."""
    return draw(permuted_arrays(tuple(draw(st.lists(EXTENTS, min_size=least, max_size=5)))))


@st.composite
def products(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Operands of a batched product, each lacking some batch axes, and where its result goes."""
    batch = draw(st.lists(EXTENTS, max_size=3))
    m, k, n = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)

    def partial() -> list[int]:
        own = [draw(st.sampled_from([1, extent])) for extent in batch]
        return own[draw(st.integers(0, len(own))) :]

    lhs = draw(permuted_arrays((*partial(), m, k)))
    rhs = draw(permuted_arrays((*partial(), k, n)))
    reached = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    return lhs, rhs, draw(permuted_arrays((*reached, m, n)))


@given(st.lists(EXTENTS, max_size=5))
def test_dense_views_are_numpys(shape: list[int]) -> None:
    assert View.dense(shape) == view_of(np.empty(shape))


@given(st.data())
def test_permuted_and_transposed_views_are_numpys(data: st.DataObject) -> None:
    array = data.draw(arrays())
    axes = data.draw(st.permutations(range(array.ndim)))
    assert view_of(array).permuted(axes) == view_of(array.transpose(axes))
    if array.ndim >= 2:
        assert view_of(array).transposed() == view_of(np.swapaxes(array, -1, -2))


@given(st.data())
def test_a_new_axis_changes_no_element(data: st.DataObject) -> None:
    array = data.draw(arrays())
    axis = data.draw(st.integers(0, array.ndim))
    memory = array.base if array.base is not None else array
    view = view_of(array).inserted(axis)
    np.testing.assert_array_equal(seen(memory, view), np.expand_dims(array, axis))


@given(st.data())
def test_broadcasting_reads_what_numpy_does(data: st.DataObject) -> None:
    array = data.draw(arrays(least=2))
    own = array.shape[:-2]
    more = data.draw(st.lists(EXTENTS, max_size=2))
    batch = (*more, *(data.draw(EXTENTS) if extent == 1 else extent for extent in own))
    view = view_of(array).broadcast_batch(batch)
    expected = np.broadcast_to(array, (*batch, *array.shape[-2:]))
    assert view.shape == expected.shape
    np.testing.assert_array_equal(seen(array.base, view), expected)


@given(arrays(least=2))
def test_a_matrix_is_a_flag_and_a_leading_dimension(array: Array) -> None:
    """Read as BLAS does, from every position of the batch."""
    view = view_of(array)
    rows, columns = array.shape[-2:]
    try:
        by_columns, leading = view.matrix("operand")
    except UnsupportedProblemError as err:
        assert 1 not in (rows, columns, *view.strides[-2:])
        assert "the operand has neither" in str(err)
        return
    assert leading >= (rows if by_columns else columns) or 1 in (rows, columns)
    strides = (1, leading) if by_columns else (leading, 1)
    read = View(array.shape, (*view.strides[:-2], *strides))
    np.testing.assert_array_equal(seen(array.base, read), array)


@settings(max_examples=200)
@given(products())
def test_merged_and_folded_views_hold_the_same_product(given: tuple[Array, Array, Array]) -> None:
    lhs, rhs, result = given
    a, b, c = matmul_views(view_of(lhs), view_of(rhs), view_of(result))
    assert a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
    merged = merge_batch_axes(a, b, c)
    assert 1 not in merged[2].shape[:-2]
    for views in (merged, fold_batch_into_rows(*merged)):
        memory = np.full(result.size, np.nan)
        seen(memory, views[2])[...] = seen(lhs.base, views[0]) @ seen(rhs.base, views[1])
        np.testing.assert_array_equal(seen(memory, view_of(result)), lhs @ rhs)


@given(st.lists(EXTENTS, max_size=3), EXTENTS, EXTENTS, EXTENTS)
def test_a_dense_batch_with_shared_weights_is_one_product(
    batch: list[int], m: int, k: int, n: int
) -> None:
    views = matmul_views(View.dense([*batch, m, k]), View.dense([k, n]))
    a, b, c = fold_batch_into_rows(*merge_batch_axes(*views))
    rows = int(np.prod(batch, dtype=int)) * m
    assert (a.shape, b.shape, c.shape) == ((rows, k), (k, n), (rows, n))


@pytest.mark.parametrize(("left", "right"), [((5,), (5,)), ((5,), (2, 5, 3)), ((4, 3, 5), (5,))])
def test_products_with_vectors_are_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    lhs, rhs = numbered(left), numbered(right)
    a, b, c = matmul_views(View.dense(left), View.dense(right))
    expected = lhs @ rhs
    product = seen(lhs, a) @ seen(rhs, b)
    assert product.shape == c.shape
    np.testing.assert_array_equal(product.reshape(expected.shape), expected)
    with pytest.raises(UnsupportedProblemError, match="vector"):
        matmul_views(View.dense(left), View.dense(right), View.dense(expected.shape))


def permuted_call(shape: tuple[int, ...], axes: list[int] | None) -> relax.Expr:
    call = relax.op.permute_dims(relax.Var("x", relax.TensorType(shape, "float32")), axes)
    return relax.BlockBuilder().normalize(call)


@pytest.mark.parametrize("axes", [[2, 0, 1, 3], [-1, 1, 0, 2], None])
def test_relax_permutations_are_views(axes: list[int] | None) -> None:
    """An operand is read, and a result written, where ``permute_dims`` says."""
    array = numbered((2, 3, 4, 5))
    call = permuted_call(array.shape, axes)
    order = None if axes is None else [axis % 4 for axis in axes]
    assert operand_view(call) == view_of(array.transpose(order))
    assert operand_view(call.args[0]) == View.dense(array.shape)
    target = result_view(call)
    assert target is not None and target.shape == array.shape
    memory = np.empty(array.size)
    seen(memory, target)[...] = array
    np.testing.assert_array_equal(
        memory.reshape(array.transpose(order).shape), array.transpose(order)
    )
    assert result_view(call.args[0]) is None


def test_a_shape_that_is_not_static_is_refused() -> None:
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    with pytest.raises(UnsupportedProblemError, match="an operand has no static shape") as caught:
        operand_view(x)
    assert caught.value.value is not None
