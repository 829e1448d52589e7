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
    if given == "float64":
        data[1, :2] = [655.25 + 1e-9, 1 + 2**-8 + 1e-12]  # beside the middle of two halves
    back = "float64" if given == "float64" else "float32"

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        rounded = emit(relax.op.astype(emit(relax.op.negative(x)), narrow))
        return relax.op.astype(rounded, back)

    mod = graph([data.shape], body, given)
    (got,) = tvm_cases.run(mod, [data], context, device)
    with np.errstate(over="ignore"):
        # From float64 by way of float32, as PyTorch and onnxruntime have it.
        wide = (-data).astype("float32") if given == "float64" else -data
        np.testing.assert_array_equal(got, wide.astype(narrow).astype(back))


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


@pytest.mark.parametrize("schedule", ["default", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_comparisons_keep_what_is_no_number(
    dtype: str, schedule: str, context: BuildContext
) -> None:
    """Limits and extremes give what is no number, first operand or second; it equals nothing."""
    values = [np.nan, np.inf, -np.inf, -2.5, -1.0, 0.0, 0.5, 2.0, 3.0]
    a, b = (part.astype(dtype) for part in np.meshgrid(values, values))
    one, op = relax.const(1.0, dtype), relax.op

    def body(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        made = [op.clip(x, -1.0, 2.0), op.clip(x, 0.0, float("inf"))]
        made += [op.maximum(x, y), op.minimum(x, y), op.maximum(x, one), op.minimum(one, x)]
        made += [op.not_equal(x, y), op.not_equal(x, x)]
        made.append(op.maximum(x, op.sum(y, [0], True)))
        return relax.Tuple([emit(value) for value in made])

    mod = graph([a.shape, b.shape], body, dtype)
    found = tvm_cases.run(mod, [a, b], context, schedule=schedule)
    with np.errstate(invalid="ignore"):
        wanted = [np.clip(a, -1, 2), np.clip(a, 0, None), np.maximum(a, b), np.minimum(a, b)]
        wanted += [np.maximum(a, a.dtype.type(1)), np.minimum(a.dtype.type(1), a), a != b, a != a]
        wanted.append(np.maximum(a, b.sum(0, keepdims=True)))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.astype("float64"), theirs.astype("float64"))


@pytest.mark.parametrize("schedule", ["default", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_extremes_begin_at_infinity(
    dtype: str, schedule: str, context: BuildContext, device: str
) -> None:
    """A row that a mask hides altogether is minus infinity, and its place is the first."""
    low = np.full((3, 40), -np.inf, dtype)
    low[1, 7] = 2.0
    op = relax.op

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        y = emit(op.negative(x))
        made = [op.max(x, [1]), op.min(y, [1], keepdims=True), op.max(x), op.argmax(x, 1)]
        return relax.Tuple([emit(value) for value in made])

    found = tvm_cases.run(graph([low.shape], body, dtype), [low], context, device, schedule)
    wanted = [low.max(1), -low.max(1, keepdims=True), low.max(), low.argmax(1)]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_constant_zero_divides(dtype: str, context: BuildContext, device: str) -> None:
    data = np.array([np.nan, np.inf, -np.inf, 2.0, -3.0, 0.0], dtype)

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        zeros = [relax.const(zero, dtype) for zero in (0.0, -0.0)]
        return relax.Tuple([emit(relax.op.divide(x, zero)) for zero in zeros])

    found = tvm_cases.run(graph([data.shape], body, dtype), [data], context, device)
    with np.errstate(all="ignore"):
        for ours, zero in zip(found, (0.0, -0.0), strict=True):
            np.testing.assert_array_equal(ours, data / data.dtype.type(zero))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "int16", "uint8", "int32", "int64"]
)
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_know_the_order_of_every_type(
    descending: bool, dtype: str, context: BuildContext, device: str
) -> None:
    first = 0 if dtype == "uint8" else -40
    numbers = np.arange(first, first + 84).reshape(4, 21)
    data = np.random.default_rng().permutation(numbers.T).T.astype(dtype)

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


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_signs_of_numbers_that_have_none(dtype: str, context: BuildContext, device: str) -> None:
    data = np.random.default_rng().integers(0, 250, (5, 9)).astype(dtype)
    data[0, :3] = [0, 1, np.iinfo(dtype).max]

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        return relax.Tuple([emit(relax.op.negative(x)), emit(relax.op.sign(x))])

    negative, sign = tvm_cases.run(graph([data.shape], body, dtype), [data], context, device)
    np.testing.assert_array_equal(negative, np.negative(data))
    np.testing.assert_array_equal(sign, np.sign(data))


def _grouped(x: Any, gamma: Any, beta: Any, groups: int) -> Any:
    wide = x.reshape(x.shape[0], groups, -1)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    normal = ((wide - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    return normal * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_norms_in_float64_keep_its_digits(groups: int, context: BuildContext, device: str) -> None:
    random = np.random.default_rng()
    x = random.standard_normal((2, 6, 5, 7)) + 100
    gamma, beta = random.standard_normal((2, 6))

    def body(emit: Any, x: relax.Var, gamma: relax.Var, beta: relax.Var) -> relax.Expr:
        given = (x, gamma, beta)
        if groups == 6:
            return relax.op.nn.instance_norm(*given, channel_axis=1, axes=[2, 3], epsilon=1e-5)
        return relax.op.nn.group_norm(
            *given, num_groups=groups, channel_axis=1, axes=[2, 3], epsilon=1e-5
        )

    mod = graph([x.shape, (6,), (6,)], body, "float64")
    (got,) = tvm_cases.run(mod, [x, gamma, beta], context, device)
    np.testing.assert_allclose(got, _grouped(x, gamma, beta, groups), rtol=1e-11, atol=1e-11)


def test_a_layer_norm_in_float64_keeps_its_digits(context: BuildContext, device: str) -> None:
    random = np.random.default_rng()
    x = random.standard_normal((3, 4, 8)) + 100
    gamma, beta = random.standard_normal((2, 4, 8))

    def body(emit: Any, x: relax.Var, gamma: relax.Var, beta: relax.Var) -> relax.Expr:
        return relax.op.nn.layer_norm(x, gamma, beta, axes=[-2, -1], epsilon=1e-5)

    mod = graph([x.shape, (4, 8), (4, 8)], body, "float64")
    (got,) = tvm_cases.run(mod, [x, gamma, beta], context, device)
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    wanted = (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def test_rounds_every_float_as_numpy_does(context: BuildContext) -> None:
    """Drawn bits, ties, and what is near 2^23: values and signs, of vectors and of a remainder."""
    rng = np.random.default_rng()
    drawn = rng.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
    ties = (rng.integers(-50, 50, 500) + 0.5).astype("float32")
    signs = rng.choice(np.array([-1, 1], "float32"), 100)
    far = (2.0**23 + rng.integers(-9, 9, 100) / 2).astype("float32") * signs
    x = np.concatenate([drawn, ties, far, np.array([0.0, -0.0, 0.3, -0.3], "float32")])

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(relax.Tuple([emit(relax.op.round(x)), emit(relax.op.isnan(x))]))

    rounded, is_none = tvm_cases.run(tvm_cases.partition(body, [x]), [x], context)
    small = np.abs(x) < np.finfo("float32").tiny
    with np.errstate(invalid="ignore"):
        wanted = np.round(np.where(small, np.copysign(np.float32(0), x), x))
    np.testing.assert_array_equal(rounded, wanted)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(rounded)[numbers], np.signbit(x)[numbers])
    np.testing.assert_array_equal(is_none, np.isnan(x))
