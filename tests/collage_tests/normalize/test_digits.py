"""Constants that are computed are rounded once, from the numbers of the model."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.normalize import normalize
from collage.rewrite import constant, flat_bindings
from tests.collage_tests.normalize.oracle import call_of, check, module, operators

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


def test_a_gate_behind_a_convolution_is_scaled_with_its_weights() -> None:
    """Scaled behind the bounds, all of a channel was off by what 1/6 and 3 + bias were rounded."""
    weights, bias = drawn(8, 4, 1, 1, dtype="float32"), drawn(8, seed=1, dtype="float32")

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, relax.const(weights)))
        y = bb.emit(R.add(y, relax.const(bias.reshape(1, 8, 1, 1))))
        y = bb.emit(R.clip(bb.emit(R.add(y, relax.const(3.0, "float32"))), 0, 6))
        return bb.emit(R.divide(y, relax.const(6.0, "float32")))

    normal = check(module([(1, 4, 6, 6)], body), ["nn.conv2d", "add", "clip"])
    folded = constant(call_of(normal, "nn.conv2d").args[1])
    shift = constant(call_of(normal, "add").args[1])
    np.testing.assert_array_equal(folded, (weights / np.float64(6)).astype("float32"))
    wanted = ((bias + np.float64(3)) / 6).astype("float32")
    np.testing.assert_array_equal(shift.reshape(-1), wanted)


def test_a_gate_whose_sum_others_need_is_left() -> None:
    bias = drawn(8, seed=1, dtype="float32").reshape(1, 8, 1, 1)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.add(x, relax.const(bias)))
        gate = bb.emit(R.divide(bb.emit(R.clip(y, 0, 6)), relax.const(6.0, "float32")))
        return bb.emit(R.multiply(gate, bb.emit(R.tanh(y))))

    check(module([(1, 8, 6, 6)], body), ["add", "clip", "multiply", "tanh", "multiply"])


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


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_places_of_the_largest_weights_are_known_beforehand(dtype: str) -> None:
    """A determinant's elimination asks for them row by row; what follows is known with them."""
    weights = (100 * drawn(6, 6, seed=5, dtype="float32")).astype(dtype)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        turned = bb.emit(R.flip(relax.const(weights), axis=0))
        largest = bb.emit(R.argmax(turned, axis=0, keepdims=True))
        least = bb.emit(R.argmin(turned, axis=1))
        tiled = bb.emit(R.tile(bb.emit(R.add(largest, least)), (2, 1)))
        return bb.emit(R.add(x, tiled))

    normal = normalize(module([(2, 6)], body, "int64"))
    assert operators(normal) == ["add"]
    (_, added), *_ = flat_bindings(normal["main"])
    turned = weights[::-1]
    wanted = np.tile(turned.argmax(0)[None] + turned.argmin(1), (2, 1))
    np.testing.assert_array_equal(constant(added.args[1]), wanted)


def number(bb: relax.BlockBuilder, value: float) -> relax.Expr:
    """As the importer of PyTorch's programs writes a Python number that multiplies a tensor."""
    return bb.emit(R.astype(relax.const(value, "float32"), "float16"))


def test_numbers_that_half_precision_cannot_hold_multiply_in_float32() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.exp(bb.emit(R.multiply(x, number(bb, 0.2)))))
        return bb.emit(R.divide(y, number(bb, 0.3)))

    normal = normalize(module([(4, 16)], body, "float16"))
    wide = ["astype", "multiply", "astype"]
    assert operators(normal) == [*wide, "exp", *wide]
    products = [v for _, v in flat_bindings(normal["main"]) if "multiply" in str(v.op)]
    found = [float(constant(product.args[1])) for product in products]
    np.testing.assert_allclose(found, [0.2, 1 / 0.3], rtol=2**-23)
    again = normalize(normal)
    assert operators(again) == operators(normal)


@pytest.mark.parametrize("value", [0.125, -2.0, 1.702, 1 / 6])
def test_numbers_that_need_no_more_digits_multiply_as_they_are(value: float) -> None:
    """Those that are exact, and those that patterns of libraries look for."""

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit(R.exp(bb.emit(R.multiply(x, number(bb, value)))))

    assert operators(normalize(module([(4, 16)], body, "float16"))) == ["multiply", "exp"]


@pytest.mark.parametrize("name", ["conv2d", "conv2d_transpose"])
def test_a_number_goes_into_the_weights_behind_it(name: str) -> None:
    weights = drawn(4, 4, 3, 3)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.multiply(bb.emit(R.nn.gelu(x)), number(bb, 1.7015)))
        return bb.emit(getattr(R.nn, name)(y, relax.const(weights), padding=1))

    normal = normalize(module([(1, 4, 6, 6)], body, "float16"))
    assert operators(normal) == ["nn.gelu", f"nn.{name}"]
    folded = constant(call_of(normal, f"nn.{name}").args[1])
    wanted = (weights.astype("float64") * np.float32(1.7015)).astype("float16")
    np.testing.assert_array_equal(folded, wanted)


def test_a_number_that_others_read_stays_before_the_weights() -> None:
    weights = drawn(4, 4, 3, 3)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.multiply(x, relax.const(1.5, "float16")))
        return bb.emit(R.add(y, bb.emit(R.nn.conv2d(y, relax.const(weights), padding=1))))

    normal = normalize(module([(1, 4, 6, 6)], body, "float16"))
    assert operators(normal) == ["multiply", "nn.conv2d", "add"]


def test_scores_are_scaled_as_libraries_look_for_them() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        turned = bb.emit(R.permute_dims(x, [0, 2, 1]))
        scores = bb.emit(R.matmul(x, turned))
        return bb.emit(R.nn.softmax(bb.emit(R.multiply(scores, number(bb, 0.17677669529)))))

    found = operators(normalize(module([(2, 8, 32)], body, "float16")))
    assert found == ["permute_dims", "matmul", "multiply", "nn.softmax"]


def test_what_is_rounded_and_widened_again_was_to_be_rounded() -> None:
    """Weights of half precision that a model computes from bytes, and adds in float32."""
    wide = (drawn(4, 4, dtype="float32") * np.float32(0.07)).astype("float32")

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        narrow = bb.emit(R.astype(relax.const(wide), "float16"))
        return bb.emit(R.add(x, bb.emit(R.astype(narrow, "float32"))))

    normal = normalize(module([(4, 4)], body))
    assert operators(normal) == ["add"]
    added = constant(call_of(normal, "add").args[1])
    np.testing.assert_array_equal(added, wide.astype("float16").astype("float32"))


def test_norms_of_weights_are_added_up_in_float64() -> None:
    """Along outer axes numpy adds up one by one: all that a norm scales was off alike."""
    weights = drawn(256, 16, 64, dtype="float32")

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        squares = bb.emit(R.square(relax.const(weights)))
        norm = bb.emit(R.sqrt(bb.emit(R.sum(squares, axis=[0, 1], keepdims=True))))
        unit = bb.emit(R.divide(relax.const(weights), norm))
        return bb.emit(R.nn.conv1d(x, unit, groups=16))

    normal = normalize(module([(1, 256, 64)], body))
    folded = constant(call_of(normal, "nn.conv1d").args[1])
    wanted = weights / np.sqrt(np.square(weights.astype("float64")).sum((0, 1)))
    np.testing.assert_allclose(folded, wanted, rtol=1.5e-7)
    off = np.mean(folded / wanted - 1, axis=(0, 1))
    assert np.abs(off).max() < 5e-8, "rounded once, each for itself"
