"""The numpy oracle on what CUDA models are made of: half precision, channels last, attention."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import ir, relax
from tvm.relax import op

from collage.cost.reference import evaluate, largest_error
from tests.cost_tests.reference.test_reference import function, random_inputs, run_tvm, tensor

RNG = np.random.default_rng(7)
X = (2, 11, 9, 8)
LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
POOL = {"layout": "NHWC", "out_layout": "NHWC"}


def weight(*shape: int, dtype: str = "float32") -> relax.Expr:
    return relax.const(RNG.standard_normal(shape).astype(dtype), dtype)


def refuse(*_: object) -> None:
    raise AssertionError("fell back to TVM")


CHANNELS_LAST: dict[str, Callable[[relax.Var], Any]] = {
    "conv": lambda x: op.nn.conv2d(x, weight(6, 3, 3, 8), padding=1, **LAST),
    "conv_strided": lambda x: op.nn.conv2d(
        x, weight(6, 3, 2, 8), strides=(2, 1), padding=(1, 0, 2, 1), **LAST
    ),
    "conv_dilated": lambda x: op.nn.conv2d(
        x, weight(4, 3, 3, 8), dilation=(2, 3), padding=2, **LAST
    ),
    "conv_pointwise": lambda x: op.nn.conv2d(x, weight(16, 1, 1, 8), **LAST),
    "conv_grouped": lambda x: op.nn.conv2d(
        x, weight(12, 3, 3, 2), groups=4, padding=1, strides=2, **LAST
    ),
    "conv_depthwise": lambda x: op.nn.conv2d(
        x, weight(8, 3, 3, 1), groups=8, strides=2, padding=1, **LAST
    ),
    "conv_multiplier": lambda x: op.nn.conv2d(x, weight(16, 3, 3, 1), groups=8, **LAST),
    "max_pool": lambda x: op.nn.max_pool2d(x, (3, 2), strides=2, padding=(1, 0, 1, 1), **POOL),
    "max_pool_ceil": lambda x: op.nn.max_pool2d(x, 3, strides=2, ceil_mode=True, **POOL),
    "max_pool_dilated": lambda x: op.nn.max_pool2d(x, 3, dilation=2, padding=1, **POOL),
    "avg_pool": lambda x: op.nn.avg_pool2d(x, 3, strides=2, padding=1, **POOL),
    "avg_pool_beyond": lambda x: op.nn.avg_pool2d(
        x, 4, strides=2, padding=1, ceil_mode=True, count_include_pad=True, **POOL
    ),
    "adaptive": lambda x: op.nn.adaptive_avg_pool2d(x, (4, 3), **POOL),
    "mean": lambda x: op.mean(x, [1, 2], keepdims=True),
}


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last_agrees_with_tvm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.cost.reference.fallback.Compiled.evaluate", refuse)
    x = tensor(*X)
    mod = function([x], CHANNELS_LAST[name](x))
    inputs = random_inputs(mod)
    for actual, expected in zip(evaluate(mod, inputs), run_tvm(mod, inputs), strict=True):
        assert largest_error(actual, expected) < 1e-5


def test_a_convolution_may_change_the_layout() -> None:
    """TVM cannot compile that, so it is compared with the same convolution, transposed."""
    x, w = tensor(*X), weight(6, 3, 3, 8)
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    first = function([x], op.nn.conv2d(x, w, out_layout="NCHW", **layouts))
    last = function([x], op.nn.conv2d(x, w, out_layout="NHWC", **layouts))
    inputs = random_inputs(first)
    expected = evaluate(last, inputs)[0].transpose(0, 3, 1, 2)
    assert largest_error(evaluate(first, inputs)[0], np.ascontiguousarray(expected)) < 1e-6


def test_a_large_batch_is_convolved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.cost.reference.operators.linear._COLUMNS", 3000)
    x = tensor(5, 6, 6, 4)
    mod = function([x], op.nn.conv2d(x, weight(8, 3, 3, 2), groups=2, padding=1, **LAST))
    inputs = random_inputs(mod)
    assert largest_error(evaluate(mod, inputs)[0], run_tvm(mod, inputs)[0]) < 1e-5


def attention_by_hand(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, bias: Any, allowed: Any
) -> np.ndarray:
    """Row by row, in float64."""
    batch, queries, heads, _ = q.shape
    out = np.zeros((batch, queries, heads, v.shape[3]))
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores = k[b, :, h].astype("float64") @ q[b, i, h].astype("float64") * scale
                if bias is not None:
                    scores = scores + np.broadcast_to(bias, (batch, heads, queries, k.shape[1]))[
                        b, h, i
                    ].astype("float64")
                scores = np.array([s if allowed(i, j) else -np.inf for j, s in enumerate(scores)])
                weights = np.exp(scores - scores.max())
                out[b, i, h] = weights / weights.sum() @ v[b, :, h].astype("float64")
    return out


MASKS: dict[str, tuple[str | None, Callable[[int, int], bool]]] = {
    "none": (None, lambda i, j: True),
    "top left": ("TopLeft", lambda i, j: j <= i),
    # The reference's documentation: np.tril(*, k=abs(queries - keys)), here 3.
    "bottom right": ("BottomRight", lambda i, j: j <= i + 3),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias_shape", [None, (2, 3, 5, 8), (1, 1, 5, 8), (2, 1, 1, 8)])
def test_attention(
    dtype: str, mask: str, bias_shape: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.cost.reference.fallback.Compiled.evaluate", refuse)
    shapes = [(2, 5, 3, 4), (2, 8, 3, 4), (2, 8, 3, 6), *([bias_shape] if bias_shape else [])]
    params = [relax.Var(f"p{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    name, allowed = MASKS[mask]
    bias = params[3] if bias_shape else None
    mod = function(params, op.nn.attention(*params[:3], bias, scale=0.4, causal_mask=name))
    inputs = [RNG.standard_normal(shape).astype(dtype) for shape in shapes]
    (actual,) = evaluate(mod, inputs)
    q, k, v = inputs[:3]
    expected = attention_by_hand(q, k, v, 0.4, inputs[3] if bias_shape else None, allowed)
    assert actual.dtype == np.dtype(dtype) and actual.shape == (2, 5, 3, 6)
    rounding = {"float32": 1e-6, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    assert (
        np.max(np.abs(actual.astype("float64") - expected))
        < 1.1 * rounding * np.abs(expected).max() + 1e-6
    )


def test_attention_scales_by_the_root_of_the_width_and_agrees_with_tvm() -> None:
    params = [relax.Var(f"p{i}", relax.TensorType((2, 6, 3, 16), "float32")) for i in range(3)]
    mod = function(params, op.nn.attention(*params))
    inputs = random_inputs(mod)
    assert largest_error(evaluate(mod, inputs)[0], run_tvm(mod, inputs)[0]) < 1e-5


HALF: dict[str, tuple[Callable[[relax.Var], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "rms_norm": (
        lambda x: op.nn.rms_norm(
            x, relax.const(np.full(32, 1.5, "float16"), "float16"), [-1], 1e-5
        ),
        lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * 1.5,
    ),
    "layer_norm": (
        lambda x: op.nn.layer_norm(
            x,
            relax.const(np.full(32, 1.5, "float16"), "float16"),
            relax.const(np.full(32, 0.25, "float16"), "float16"),
            [-1],
            1e-5,
        ),
        lambda x: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * 1.5 + 0.25
        ),
    ),
    "gelu_tanh": (
        op.nn.gelu_tanh,
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (op.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "softmax": (op.nn.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "mean": (lambda x: op.mean(x, -1), lambda x: x.mean(-1)),
    # What is stored between two operators would overflow or lose its digits in half precision.
    "chain": (
        lambda x: op.divide(
            op.add(op.multiply(x, relax.const(4e4, "float16")), relax.const(6e4, "float16")),
            relax.const(5e4, "float16"),
        ),
        lambda x: (x * 40000.0 + float(np.float16(6e4))) / float(np.float16(5e4)),
    ),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_the_exact_value_rounded_once(name: str) -> None:
    build, exact = HALF[name]
    x = tensor(4, 32, dtype="float16")
    mod = function([x], build(x))
    value = RNG.standard_normal((4, 32)).astype("float16")
    expected = exact(value.astype("float64"))
    (actual,) = evaluate(mod, [value])
    assert actual.dtype == np.float16
    # Half a unit in the last place, and a little for float32.
    allowed = np.spacing(np.abs(expected).astype("float16")).astype("float64") * 0.51 + 1e-7
    assert (np.abs(actual.astype("float64") - expected) <= allowed).all()


def test_integers_are_made_of_what_half_precision_holds() -> None:
    """Two values that are equal in half precision are equal to argmax and to a comparison."""
    x = tensor(1, 3, dtype="float16")
    sums = op.add(x, relax.const(2048.0, "float16"))
    value = np.array([[0.25, 0.5, 0.75]], "float16")  # Each sum rounds to 2048.
    (index,) = evaluate(function([x], op.argmax(sums, 1)), [value])
    assert index.tolist() == [0]
    (equal,) = evaluate(function([x], op.equal(sums, relax.const(2048.0, "float16"))), [value])
    assert equal.all()


def test_tvm_gets_and_gives_half_precision_for_what_numpy_cannot() -> None:
    x = tensor(1, 2, 5, 5, dtype="float16")
    body = op.image.resize2d(op.nn.relu(x), (10, 10), method="nearest_neighbor")
    mod = function([x], op.negative(body))
    value = RNG.standard_normal((1, 2, 5, 5)).astype("float16")
    (actual,) = evaluate(mod, [value])
    assert actual.dtype == np.float16 and actual.shape == (1, 2, 10, 10)
    assert (actual[:, :, ::2, ::2] == -np.maximum(value, 0)).all()


def test_values_are_dropped_after_their_last_use() -> None:
    """A chain of 64 megabytes each would need gigabytes."""
    x = tensor(1 << 22, dtype="float32")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(16):
                value = builder.emit(op.add(value, relax.const(1.0)))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    data = np.zeros(1 << 22, "float32")
    tracemalloc.start()
    (result,) = evaluate(builder.get(), [data])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result == 16).all()
    assert peak < 5 * data.nbytes


def test_what_a_local_function_captures_is_kept_for_its_call() -> None:
    x, y = tensor(3), relax.Var("y", relax.TensorType((3,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        double = builder.emit(op.add(x, x))
        inner = relax.Function(
            [y],
            relax.SeqExpr([], op.multiply(y, double)),
            relax.TensorType((3,), "float32"),
        )
        local = relax.Var("local", inner.ty)
        builder.emit_normalized(relax.VarBinding(local, builder.normalize(inner)))
        negative = builder.emit(op.negative(x))
        builder.emit_func_output(builder.emit(ir.Call(local, [negative])))
    value = np.array([1.0, 2.0, 3.0], "float32")
    (result,) = evaluate(builder.get(), [value])
    assert result.tolist() == (-2 * value**2).tolist()


def test_erf_keeps_its_shape_beyond_one_block() -> None:
    x = RNG.standard_normal((3, 70_001)).astype("float32")
    param = tensor(3, 70_001)
    (actual,) = evaluate(function([param], op.erf(param)), [x])
    expected = run_tvm(function([param], op.erf(param)), [x])[0]
    assert largest_error(actual, expected) < 1e-6
