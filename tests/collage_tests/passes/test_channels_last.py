"""Channels last: the same outputs, and no more permutations than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from benchmarks.networks.models import before_softmax, light_model, light_model_names, random_inputs
from benchmarks.networks.tiny import tiny_bert, tiny_mobilenet
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.passes.channels_last import to_channels_last
from tests.collage_tests.passes.networks import (
    LIGHT_ERROR,
    Emit,
    build,
    check,
    conv,
    operators,
    weights,
)

op = relax.op


@pytest.mark.parametrize(
    "name",
    [
        # Of a kind with others, and large.
        pytest.param(name, marks=pytest.mark.slow)
        if name in ("bvlc_alexnet", "inception_v2", "vgg19", "zfnet512")
        else name
        for name in light_model_names()
    ],
)
def test_light_models_are_permuted_once(name: str) -> None:
    model = before_softmax(light_model(name))
    imported = load_model(model)
    mod = normalize(imported.mod)
    last = to_channels_last(mod)
    # A channel shuffle is a permutation in either layout.
    before = operators(mod)["permute_dims"]
    assert operators(last)["permute_dims"] == before + 1
    feeds = random_inputs(model, int(np.random.default_rng().integers(1 << 30)))
    inputs = [feeds[spec.name] for spec in imported.inputs]
    for got, wanted in zip(evaluate(last, inputs), evaluate(mod, inputs), strict=True):
        assert largest_error(got, wanted) <= LIGHT_ERROR


def test_mobilenet_is_permuted_once() -> None:
    model = tiny_mobilenet()
    imported = load_model(model)
    mod = normalize(imported.mod)
    last = to_channels_last(mod)
    assert operators(last)["permute_dims"] == 1
    feeds = random_inputs(model, 5)
    inputs = [feeds[spec.name] for spec in imported.inputs]
    assert largest_error(evaluate(last, inputs)[0], evaluate(mod, inputs)[0]) <= LIGHT_ERROR


def test_networks_without_convolutions_stay_as_they_are() -> None:
    mod = normalize(load_model(tiny_bert()).mod)
    assert to_channels_last(mod) is mod


def test_flatten_moves_into_the_dense_weights() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = emit(op.nn.relu(conv(emit, x, 6, 4)))
        flat = emit(op.reshape(y, relax.ShapeExpr((2, 6 * 5 * 3))))
        return op.add(emit(op.matmul(flat, weights(90, 7))), weights(7))

    check(build(body, (2, 4, 5, 3)), permutes=1)


def test_flatten_that_others_read_too_is_permuted_back() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        flat = emit(op.reshape(conv(emit, x, 6, 4), relax.ShapeExpr((2, 6 * 5 * 3))))
        return relax.Tuple([emit(op.matmul(flat, weights(90, 7))), flat])

    check(build(body, (2, 4, 5, 3)), permutes=2)


def test_everything_between_convolutions_follows() -> None:
    def body(emit: Emit, x: relax.Var, other: relax.Var) -> relax.Expr:
        y = conv(emit, x, 8, 4)
        y = emit(op.multiply(y, weights(1, 8, 1, 1)))
        y = emit(op.concat([y, emit(op.nn.max_pool2d(y, (3, 3), (1, 1), (1, 1, 1, 1)))], axis=1))
        y = emit(op.nn.pad(y, [0, 0, 1, 2, 3, 0, 0, 1]))
        y = emit(op.strided_slice(y, axes=[1, 3], begin=[1, 0], end=[17, 6]))
        parts = emit(op.split(y, 2, axis=1))
        y = emit(
            op.subtract(emit(relax.TupleGetItem(parts, 0)), emit(relax.TupleGetItem(parts, 1)))
        )
        y = emit(op.nn.softmax(y, axis=1))
        y = emit(op.nn.avg_pool2d(y, (2, 2), (2, 2), (0, 1, 0, 1), count_include_pad=False))
        mean = emit(op.mean(y, axis=[2, 3], keepdims=True))
        y = emit(op.where(emit(op.greater(y, mean)), y, emit(op.clip(y, 0.0, 0.1))))
        y = emit(op.image.resize2d(y, (7, 9), layout="NCHW", method="nearest_neighbor"))
        y = emit(op.add(conv(emit, y, 8, 8, groups=4), weights(7, 1, seed=3)))
        y = emit(op.add(y, other))
        return op.max(y, axis=[1], keepdims=False)

    check(build(body, (2, 4, 6, 6), (1, 8, 7, 9)), permutes=2)


def test_a_branch_that_counts_for_nothing_follows() -> None:
    """As networks begin whose branches are scaled by 0: what is no number stays none."""

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = conv(emit, x, 8, 4)
        zero, none = relax.const(0.0), relax.const(np.float32(np.nan))
        branch = emit(op.where(emit(op.isfinite(conv(emit, y, 8, 8))), zero, none))
        return op.max(emit(op.add(emit(op.trunc(emit(op.atan(branch)))), y)), axis=[1])

    check(build(body, (1, 4, 6, 5)), permutes=1)


def test_channel_shuffle_and_sequences() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = conv(emit, x, 8, 4)
        y = emit(op.reshape(y, relax.ShapeExpr((1, 2, 4, 6, 5))))
        y = emit(op.permute_dims(y, [0, 2, 1, 3, 4]))
        y = emit(op.reshape(y, relax.ShapeExpr((1, 8, 6, 5))))
        y = conv(emit, y, 8, 8, groups=8)
        # Patches become a sequence, as vision transformers have it: free in NHWC.
        y = emit(op.reshape(y, relax.ShapeExpr((1, 8, 30))))
        y = emit(op.permute_dims(y, [0, 2, 1]))
        return op.matmul(y, weights(8, 3))

    check(build(body, (1, 4, 6, 5)), permutes=2)


def test_layer_norm_over_channels_costs_nothing() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = conv(emit, x, 8, 4)
        z = emit(op.permute_dims(y, [0, 2, 3, 1]))
        z = emit(op.nn.layer_norm(z, weights(8), weights(8, seed=1), axes=[-1]))
        z = emit(op.nn.gelu(emit(op.matmul(z, weights(8, 8, seed=2)))))
        z = emit(op.permute_dims(z, [0, 3, 1, 2]))
        return op.mean(emit(op.add(z, y)), axis=[2, 3])

    check(build(body, (1, 4, 6, 5)), permutes=1, rtol=1e-4)


def test_response_normalization_across_channels() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = conv(emit, x, 8, 4)
        square = emit(op.reshape(emit(op.multiply(y, y)), relax.ShapeExpr((1, 1, 8, 30))))
        mean = emit(op.nn.avg_pool2d(square, (5, 1), (1, 1), (2, 0, 2, 0), count_include_pad=True))
        mean = emit(op.reshape(mean, relax.ShapeExpr((1, 8, 6, 5))))
        y = emit(op.divide(y, emit(op.power(emit(op.add(mean, weights(1))), weights(1, seed=2)))))
        return op.mean(conv(emit, y, 3, 8), axis=[2, 3])

    mod = build(body, (1, 4, 6, 5))
    # A negative base of a power is not a number on either side; places must agree all the same.
    check(mod, permutes=1)


def test_half_precision_weights_keep_their_type() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        return op.nn.relu(conv(emit, x, 8, 4))

    last = check(build(body, (1, 4, 6, 5), dtype="float16"), permutes=2, rtol=2e-3)
    assert "float32" not in last.script()


def test_a_computed_scalar_joins_what_has_axes() -> None:
    """It has no axes to reorder, and is another variable afterwards all the same."""

    def body(emit: Emit, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        scale = emit(op.exp(y))
        return op.multiply(conv(emit, x, 8, 4), scale)

    check(build(body, (1, 4, 5, 5), ()), permutes=2)


def test_unknown_operators_see_their_own_order() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        y = emit(op.tril(conv(emit, x, 8, 4)))
        return op.mean(conv(emit, y, 2, 8), axis=[2, 3])

    check(build(body, (1, 4, 6, 5)), permutes=3)


def _step(
    kind: int, emit: Emit, y: relax.Var, other: relax.Var, random: np.random.Generator
) -> relax.Expr:
    """One operator on values of shape (2, 8, 5, 5), which gives such a value."""
    match kind:
        case 0:
            return conv(emit, y, 8, 8, groups=int(random.choice([1, 2, 8])))
        case 1:
            return op.add(y, other)
        case 2:
            return op.nn.max_pool2d(y, (3, 3), (1, 1), (1, 1, 1, 1))
        case 3:
            return op.permute_dims(y, [0, 1, 3, 2])
        case 4:
            return op.multiply(y, emit(op.mean(other, axis=[2, 3], keepdims=True)))
        case 5:
            return op.strided_slice(emit(op.concat([y, other], axis=1)), [1], [4], [12])
        case 6:
            flat = emit(op.reshape(y, relax.ShapeExpr((2, 8, 25))))
            return op.reshape(flat, relax.ShapeExpr((2, 8, 5, 5)))
        case 7:
            return op.nn.softmax(y, axis=int(random.integers(1, 4)))
        case _:
            return op.subtract(y, weights(8, 1, 1, seed=int(random.integers(97))))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=7), st.integers(0, 2**31))
def test_random_networks_keep_their_outputs(steps: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        values = [conv(emit, x, 8, 4)]
        for kind in steps:
            y, other = (values[int(random.integers(len(values)))] for _ in range(2))
            values.append(emit(_step(kind, emit, y, other, random)))
        return op.add(values[-1], values[len(values) // 2])

    mod = build(body, (2, 4, 5, 5))
    inputs = [random.standard_normal((2, 4, 5, 5), np.float32)]
    wanted, got = evaluate(mod, inputs)[0], evaluate(to_channels_last(mod), inputs)[0]
    assert largest_error(got, wanted) <= 1e-4
