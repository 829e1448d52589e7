"""Networks between quantized values: products of bytes are one operator, weights are float32."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.relax.stepped import NAME
from collage.cost.reference import evaluate
from collage.normalize import normalize
from collage.passes import fold_quantized
from collage.rewrite import flat_bindings, op_name
from collage.testing.graphs import Emit, graph

Array = np.ndarray


def _rounded(emit: Emit, x: relax.Expr, step: float, zero: int, kind: str) -> relax.Expr:
    numbers = relax.const(np.float32(step)), relax.const(np.array(zero, kind))
    there = emit(op.quantize(x, *numbers, axis=-1, out_dtype=kind))
    return emit(op.dequantize(there, *numbers, axis=-1))


def _operators(mod: tvm.IRModule) -> list[str]:
    return [op_name(value) for _, value in flat_bindings(mod["main"]) if op_name(value)]


def _meant(x: Array, step: float, zero: int, kind: str) -> Array:
    limits = np.iinfo(kind)
    return np.clip(np.rint(x / np.float32(step)) + zero, limits.min, limits.max) - zero


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("per", ["tensor", "column"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_product_is_one_operator(kind: str, per: str, turned: bool) -> None:
    rng = np.random.default_rng()
    limits = np.iinfo(kind)
    weights = rng.integers(limits.min, limits.max, (23, 11), kind, endpoint=True)
    count = 11 if per == "column" else 1
    scales = rng.uniform(0.001, 0.01, count).astype("float32")
    zeros = rng.integers(limits.min // 2, limits.max // 2, count).astype(kind)
    step, zero = 0.02, int(rng.integers(limits.min, limits.max))
    stored = np.ascontiguousarray(weights.T) if turned else weights
    numbers = [relax.const(v if count > 1 else v[0]) for v in (scales, zeros)]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        axis = 0 if turned else 1
        w = emit(op.dequantize(relax.const(stored), *numbers, axis=axis))
        w = emit(op.permute_dims(w)) if turned else w
        return op.matmul(_rounded(emit, x, step, zero, kind), w)

    mod = graph([(2, 3, 23)], body)
    folded = normalize(fold_quantized(normalize(mod)))
    assert _operators(folded) == [NAME]
    x = rng.standard_normal((2, 3, 23)).astype("float32")
    whole = weights.astype("int64") - zeros.astype("int64")
    wanted = (_meant(x, step, zero, kind).astype("int64") @ whole) * (np.float32(step) * scales)
    for found in (evaluate(folded, [x]), evaluate(mod, [x])):
        assert np.abs(found[0] - wanted).max() <= 1e-4 * max(np.abs(wanted).max(), 1e-2)


def test_other_weights_become_what_they_stand_for() -> None:
    rng = np.random.default_rng()
    weights = relax.const(rng.integers(-128, 128, (7, 5, 3, 3)).astype("int8"))
    scales = relax.const(rng.uniform(0.001, 0.01, 7).astype("float32"))
    zeros = relax.const(np.zeros(7, "int8"))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        w = emit(op.dequantize(weights, scales, zeros, axis=0))
        y = emit(op.nn.conv2d(_rounded(emit, x, 0.02, 120, "uint8"), w))
        return _rounded(emit, y, 0.05, 3, "int8")

    mod = normalize(graph([(1, 5, 8, 8)], body))
    folded = normalize(fold_quantized(mod))
    rounding = ["quantize", "dequantize"]
    assert _operators(folded) == [*rounding, "nn.conv2d", *rounding]
    x = [rng.standard_normal((1, 5, 8, 8)).astype("float32")]
    assert np.array_equal(evaluate(folded, x)[0], evaluate(mod, x)[0])


def test_what_is_read_in_other_steps_is_no_product() -> None:
    weights = relax.const(np.ones((4, 3), "int8"))
    one, two, zero = (relax.const(v) for v in (np.float32(1), np.float32(2), np.int8(0)))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        there = emit(op.quantize(x, one, zero, axis=-1, out_dtype="int8"))
        back = emit(op.dequantize(there, two, zero, axis=-1))
        return op.matmul(back, emit(op.dequantize(weights, one, zero, axis=-1)))

    assert NAME not in _operators(fold_quantized(graph([(2, 4)], body)))


def test_nothing_quantized_stays_itself() -> None:
    mod = graph([(2, 4)], lambda emit, x: op.exp(x))
    assert fold_quantized(mod) is mod


def test_bytes_that_are_moved_are_rounded_values_still() -> None:
    """Pools and other shapes of bytes, as networks have them whose operators are of bytes."""
    numbers = relax.const(np.float32(0.02)), relax.const(np.uint8(120))

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        there = emit(op.quantize(x, *numbers, axis=3, out_dtype="uint8"))
        pooled = emit(op.nn.max_pool2d(there, (2, 2), (2, 2)))
        y = emit(op.dequantize(pooled, *numbers, axis=3))
        flat = emit(op.reshape(emit(op.quantize(y, *numbers, axis=3, out_dtype="uint8")), (1, 36)))
        return op.dequantize(flat, *numbers, axis=1)

    mod = normalize(graph([(1, 4, 6, 6)], body))
    folded = normalize(fold_quantized(mod))
    rounding = ["quantize", "dequantize"]
    assert _operators(folded) == [*rounding, "nn.max_pool2d", "reshape", *rounding]
    x = [np.random.default_rng().standard_normal((1, 4, 6, 6)).astype("float32")]
    assert np.array_equal(evaluate(folded, x)[0], evaluate(mod, x)[0])
