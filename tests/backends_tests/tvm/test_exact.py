"""What must come out exactly: rounding casts, values that are no number, orders; on each device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from benchmarks.gpu.cases.float64 import widened as in_float64
from collage.backends.contract import BuildContext
from collage.backends.toolchain.cuda_runtime import has_device
from collage.normalize import normalize
from collage.testing import graph
from tests.backends_tests.tvm import cases as tvm_cases


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not has_device(), reason="there is no CUDA device"),
            ],
        ),
    ]
)
def device(request: pytest.FixtureRequest) -> str:
    """Where the kernels run."""
    return str(request.param)


@pytest.mark.parametrize("given", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_what_a_program_rounds_is_rounded_whoever_reads_it(
    given: str, narrow: str, context: BuildContext, device: str
) -> None:
    """``x.half().float()`` keeps the digits of a half, though kernels compute in float32."""
    data = (np.random.default_rng().standard_normal((4, 37)) * 1e4).astype(given)
    if given != "int32":
        data[0, :4] = [np.nan, np.inf, -np.inf, 1e-30]
    back = "float64" if given == "float64" else "float32"

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        rounded = emit(relax.op.astype(emit(relax.op.negative(x)), narrow))
        return relax.op.astype(rounded, back)

    mod = graph([data.shape], body, given)
    (got,) = tvm_cases.run(mod, [data], context, device)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, (-data).astype(narrow).astype(back))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_relu_of_what_is_no_number_is_none(dtype: str, context: BuildContext, device: str) -> None:
    data = np.array([np.nan, 1.5, -2, -0.0, 0, np.inf, -np.inf, 3] * 5, dtype)
    (got,) = tvm_cases.run(
        graph([data.shape], lambda _, x: relax.op.nn.relu(x), dtype), [data], context, device
    )
    np.testing.assert_array_equal(got, np.where(data < 0, 0, data).astype(dtype))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf", "log", "sin", "cos", "sqrt"])
def test_functions_of_what_is_no_number_give_none(
    name: str, context: BuildContext, device: str
) -> None:
    data = np.array([np.nan, 0.5, 0.0, 3.0, np.inf, 1.0, 200.0] * 5, "float32")
    function = getattr(relax.op, name)
    mod = graph([data.shape], lambda emit, x: function(emit(relax.op.negative(x))))
    (got,) = tvm_cases.run(mod, [-data], context, device)
    with np.errstate(all="ignore"):
        (wanted,) = in_float64(mod).run([-data])
        wanted = wanted.astype("float32")
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_zero_times_what_is_no_number_is_none(
    dtype: str, context: BuildContext, device: str
) -> None:
    data = np.array([np.nan, 1.5, -2, 0, np.inf, -np.inf] * 5, dtype)
    mod = graph([data.shape], lambda _, x: relax.op.multiply(x, relax.const(0.0, dtype)), dtype)
    (got,) = tvm_cases.run(normalize(mod), [data], context, device)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, data * np.array(0, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_know_the_order_of_every_type(
    descending: bool, dtype: str, context: BuildContext, device: str
) -> None:
    data = np.random.default_rng().permutation(np.arange(-40, 44).reshape(4, 21).T).T.astype(dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        largest = emit(relax.op.topk(x, 5, -1, "both", descending))
        return relax.Tuple(
            [
                emit(relax.op.sort(x, -1, descending)),
                emit(relax.op.argsort(x, -1, descending)),
                emit(relax.TupleGetItem(largest, 0)),
                emit(relax.TupleGetItem(largest, 1)),
            ]
        )

    mod = graph([data.shape], body, dtype)
    found = tvm_cases.run(mod, [data], context, device)
    order = np.argsort(data.astype("float32") * (-1 if descending else 1), -1)
    ordered = np.take_along_axis(data, order, -1)
    wanted = (ordered, order, ordered[:, :5], order[:, :5])
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    assert str(found[0].dtype) == dtype
