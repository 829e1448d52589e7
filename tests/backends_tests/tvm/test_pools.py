"""Pools of any window, beside PyTorch's: one axis after the other, and padding at rows' ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

torch = pytest.importorskip("torch", exc_type=ImportError)
pytestmark = pytest.mark.torch

AVERAGES: dict[int, Callable[..., Any]] = {
    1: torch.nn.functional.avg_pool1d,
    2: torch.nn.functional.avg_pool2d,
    3: torch.nn.functional.avg_pool3d,
}
LARGEST: dict[int, Callable[..., Any]] = {
    1: torch.nn.functional.max_pool1d,
    2: torch.nn.functional.max_pool2d,
    3: torch.nn.functional.max_pool3d,
}
EXTENTS = {1: [4, 9, 33, 100, 257], 2: [5, 7, 12, 30, 56], 3: [3, 6, 9, 17]}


@given(data=st.data())
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_pool(data: st.DataObject, context: BuildContext) -> None:
    rank = data.draw(st.integers(1, 3), label="rank")
    largest = data.draw(st.booleans(), label="largest")

    def each(strategy: st.SearchStrategy[int], name: str) -> list[int]:
        return data.draw(st.lists(strategy, min_size=rank, max_size=rank), label=name)

    space = each(st.sampled_from(EXTENTS[rank]), "space")
    window = [min(w, n) for w, n in zip(each(st.integers(1, 9), "window"), space, strict=True)]
    step = each(st.integers(1, 5), "step")
    padding = [data.draw(st.integers(0, w // 2), label="padding") for w in window]
    dilation = each(st.integers(1, 3), "dilation") if largest else [1] * rank
    fits = zip(window, dilation, space, padding, strict=True)
    dilation = [d if (w - 1) * d < n + 2 * p else 1 for w, d, n, p in fits]
    rounded_up = data.draw(st.booleans(), label="rounded up")
    shape = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5)), *space)
    x = np.random.default_rng().standard_normal(shape).astype("float32")
    name = f"{'max' if largest else 'avg'}_pool{rank}d"
    given_: dict[str, Any] = {"ceil_mode": rounded_up}
    if largest:
        wanted = LARGEST[rank](
            torch.from_numpy(x), window, step, padding, dilation, ceil_mode=rounded_up
        )
    else:
        counts = data.draw(st.booleans(), label="padding counts")
        given_["count_include_pad"] = counts
        # Windows beyond the padding are counted by each in a way of its own.
        given_["ceil_mode"] = rounded_up = False
        wanted = AVERAGES[rank](torch.from_numpy(x).double(), window, step, padding, False, counts)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        both = [*padding, *padding]
        return emit(getattr(op.nn, name)(x, window, step, both, dilation, **given_))

    mod = tvm_cases.partition(body, [x])
    threads = data.draw(st.sampled_from([1, 3]), label="threads")
    (got,) = tvm_cases.run(mod, [x], tvm_cases.for_example(context, threads))
    if largest:
        np.testing.assert_array_equal(got, wanted.numpy())
    else:
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float64"])
def test_the_largest_of_other_types(dtype: str, context: BuildContext) -> None:
    x = np.random.default_rng().integers(0, 100, (2, 3, 12, 21)).astype(dtype)
    mod = tvm_cases.partition(
        lambda emit, x: emit(op.nn.max_pool2d(x, (3, 5), (2, 1), (1, 2, 1, 2))), [x]
    )
    (got,) = tvm_cases.run(mod, [x], context)
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(x).double(), (3, 5), (2, 1), (1, 2))
    np.testing.assert_array_equal(got, wanted.numpy().astype(dtype))


def test_rows_of_minus_infinity(context: BuildContext) -> None:
    x = np.full((1, 2, 8, 40), -np.inf, "float32")
    mod = tvm_cases.partition(
        lambda emit, x: emit(op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1))), [x]
    )
    (got,) = tvm_cases.run(mod, [x], context)
    np.testing.assert_array_equal(got, x)
