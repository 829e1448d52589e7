"""Constants that are computed are rounded once, from the numbers of the model."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.normalize import normalize
from collage.rewrite import constant, flat_bindings
from tests.collage_tests.normalize.oracle import call_of, module, operators

R = relax.op


def drawn(*shape: int, seed: int = 0, dtype: str = "float16") -> np.ndarray:
    """Away from zero, so that relative errors tell."""
    random = np.random.default_rng(seed)
    return (random.uniform(0.5, 1.5, shape) * random.choice([-1, 1], shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_a_batch_norm_leaves_is_rounded_once(dtype: str) -> None:
    weights, bias = drawn(8, 4, 3, 3, dtype=dtype), drawn(8, seed=1, dtype=dtype)
    gamma, beta, mean = (drawn(8, seed=seed, dtype=dtype) for seed in (2, 3, 4))
    variance = np.abs(drawn(8, seed=5, dtype=dtype))

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, relax.const(weights), padding=1))
        y = bb.emit(R.add(y, relax.const(bias.reshape(1, 8, 1, 1))))
        statistics = [relax.const(c) for c in (gamma, beta, mean, variance)]
        norm = bb.emit(R.nn.batch_norm(y, *statistics, axis=1, epsilon=1e-3, training=False))
        return bb.emit(R.nn.relu(bb.emit(relax.TupleGetItem(norm, 0))))

    normal = normalize(module([(1, 4, 6, 6)], body, dtype))
    assert operators(normal) == ["nn.conv2d", "add", "nn.relu"]
    slope = gamma.astype("float64") / np.sqrt(variance.astype("float64") + 1e-3)
    offset = beta.astype("float64") + (bias.astype("float64") - mean) * slope
    folded = constant(call_of(normal, "nn.conv2d").args[1])
    shift = constant(call_of(normal, "add").args[1])
    np.testing.assert_array_equal(folded, (weights * slope[:, None, None, None]).astype(dtype))
    # Sums of terms that nearly cancel, in float32 where half precision is stored.
    np.testing.assert_allclose(shift.reshape(-1), offset.astype(dtype), rtol=0, atol=1e-3 * 2**-11)


def test_scales_one_after_the_other_are_rounded_once() -> None:
    weights, scales = drawn(16, 8), [drawn(8, seed=seed) for seed in (1, 2, 3)]

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.matmul(x, relax.const(weights)))
        for scale in scales:
            y = bb.emit(R.multiply(y, relax.const(scale)))
        return y

    normal = normalize(module([(4, 16)], body, "float16"))
    assert operators(normal) == ["matmul"]
    wide = weights.astype("float64") * np.prod([s.astype("float64") for s in scales], axis=0)
    folded = constant(call_of(normal, "matmul").args[1])
    np.testing.assert_allclose(folded, wide, rtol=2**-11 * 1.001)


def test_standardized_weights_are_computed_beforehand() -> None:
    weights, gain = drawn(8, 4, 3, 3), np.abs(drawn(8, seed=1))

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        flat = bb.emit(R.reshape(relax.const(weights), (1, 8, 36)))
        zero = relax.const(np.zeros(8, "float16"))
        norm = R.nn.instance_norm(flat, relax.const(gain), zero, channel_axis=1, axes=[0, 2])
        standard = bb.emit(R.reshape(bb.emit(norm), (8, 4, 3, 3)))
        return bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, standard)), relax.const(0.3, "float16")))

    normal = normalize(module([(1, 4, 6, 6)], body, "float16"))
    assert operators(normal) == ["nn.conv2d"]
    flat = weights.astype("float64").reshape(8, 36)
    wanted = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-5)
    wanted = wanted * gain.astype("float64")[:, None] * np.float64(np.float16(0.3))
    folded = constant(call_of(normal, "nn.conv2d").args[1])
    np.testing.assert_allclose(folded.reshape(8, 36), wanted, rtol=2**-11 * 1.01, atol=2**-24)


def test_a_small_network_on_constants_is_computed_beforehand() -> None:
    table, wide, narrow = drawn(9, 2), drawn(2, 32, seed=1), drawn(32, 4, seed=2)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        hidden = bb.emit(R.matmul(relax.const(table), relax.const(wide)))
        out = bb.emit(R.matmul(bb.emit(R.nn.relu(hidden)), relax.const(narrow)))
        bias = bb.emit(R.multiply(bb.emit(R.sigmoid(out)), relax.const(16.0, "float16")))
        return bb.emit(R.add(x, bias))

    normal = normalize(module([(9, 4)], body, "float16"))
    assert operators(normal) == ["add"]
    (_, added), *_ = flat_bindings(normal["main"])
    hidden = np.maximum(table.astype("float64") @ wide.astype("float64"), 0)
    wanted = 16 / (1 + np.exp(-hidden @ narrow.astype("float64")))
    np.testing.assert_allclose(constant(added.args[1]), wanted, rtol=2**-11 * 1.01, atol=1e-7)
