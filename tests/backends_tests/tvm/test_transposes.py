"""Changes of layout, beside NumPy's: tiles in registers, and runs where reshapes divided axes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

DTYPES = ["float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool"]


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (rng.standard_normal(shape) * 9).astype(dtype)


@given(data=st.data())
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_permutation(data: st.DataObject, context: BuildContext) -> None:
    rank = data.draw(st.integers(2, 5), label="rank")
    extents = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 24, 33])
    shape = tuple(data.draw(st.lists(extents, min_size=rank, max_size=rank), label="shape"))
    order = data.draw(st.permutations(range(rank)), label="order")
    dtype = data.draw(st.sampled_from(DTYPES), label="dtype")
    threads = data.draw(st.sampled_from([1, 3]), label="threads")
    x = _numbers(np.random.default_rng(), shape, dtype)
    mod = tvm_cases.partition(lambda emit, x: emit(op.permute_dims(x, list(order))), [x])
    (got,) = tvm_cases.run(mod, [x], tvm_cases.for_example(context, threads))
    np.testing.assert_array_equal(got, x.transpose(order))


@given(data=st.data())
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_between_reshapes_with_work_around(data: st.DataObject, context: BuildContext) -> None:
    rank = data.draw(st.integers(2, 5), label="rank")
    extents = st.sampled_from([1, 2, 3, 4, 6, 8, 9, 16, 20])
    middle = tuple(data.draw(st.lists(extents, min_size=rank, max_size=rank), label="shape"))
    order = data.draw(st.permutations(range(rank)), label="order")
    before, after = (
        _fewer_axes(data, shape) for shape in (middle, tuple(middle[axis] for axis in order))
    )
    rng = np.random.default_rng()
    x, bias = _numbers(rng, before, "float32"), _numbers(rng, after[-1:], "float32")
    other = _numbers(rng, after, "float32")

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        x, bias, other = args
        cut = emit(op.reshape(emit(op.negative(x)), middle))
        back = emit(op.reshape(emit(op.permute_dims(cut, list(order))), after))
        return emit(op.multiply(emit(op.add(back, bias)), other))

    mod = tvm_cases.partition(body, [x, bias, other])
    (got,) = tvm_cases.run(mod, [x, bias, other], tvm_cases.for_example(context))
    wanted = (-x.reshape(middle).transpose(order).reshape(after) + bias) * other
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def _fewer_axes(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape some neighbours of which are joined."""
    joined = [shape[0]]
    for extent in shape[1:]:
        if data.draw(st.booleans()):
            joined[-1] *= extent
        else:
            joined.append(extent)
    return tuple(joined)


@pytest.mark.parametrize(
    ("shape", "middle", "order"),
    [
        ((64, 49, 30), None, (0, 2, 1)),
        ((12, 197, 64), None, (1, 0, 2)),
        ((1, 232, 14, 14), (1, 2, 116, 14, 14), (0, 2, 1, 3, 4)),
        ((1, 16, 9, 11), (1, 4, 2, 2, 9, 11), (0, 1, 4, 2, 5, 3)),
    ],
    ids=["across", "heads", "channels shuffled", "pixels shuffled"],
)
def test_taken_by_tiles_or_runs(
    shape: tuple[int, ...],
    middle: tuple[int, ...] | None,
    order: tuple[int, ...],
    context: BuildContext,
) -> None:
    x = _numbers(np.random.default_rng(), shape, "float32")
    last = (shape[0], math.prod(shape[1:]))

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        cut = emit(op.reshape(x, middle)) if middle else x
        moved = emit(op.permute_dims(cut, list(order)))
        return emit(op.reshape(moved, last)) if middle else moved

    mod = tvm_cases.partition(body, [x])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["transpose"] or not middle
    (got,) = tvm_cases.run(mod, [x], context)
    wanted = x.reshape(middle or shape).transpose(order)
    np.testing.assert_array_equal(got, wanted.reshape(last) if middle else wanted)
