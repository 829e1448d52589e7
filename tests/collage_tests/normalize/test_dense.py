"""Dense layers, layer norms and attention: run before and after."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax

from collage.backends.relax.static_shape import static_shape
from collage.rewrite import constant
from tests.collage_tests.normalize.oracle import call_of, check, module, normal, positive

R = relax.op
ROWS = (3, 6)
SEQUENCE = (2, 5, 6)


def scalar(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("bias", ["(N,)", "(1, N)", "first"])
def test_gemm_is_matmul_and_bias(alpha: float, bias: str) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.matmul(R.multiply(x, scalar(alpha)), R.permute_dims(normal(4, 6), [1, 0]))
        if bias == "first":
            return R.add(normal(4, seed=2), y)
        return R.add(y, normal(*((4,) if bias == "(N,)" else (1, 4)), seed=2))

    mod = check(module([ROWS], body), ["matmul", "add"])
    assert static_shape(call_of(mod, "matmul").args[1]) == (6, 4)
    assert static_shape(call_of(mod, "add").args[1]) == (4,)


def test_scales_after_a_dense_layer_go_into_its_weights() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.add(R.matmul(x, normal(6, 4)), normal(4, seed=2))
        return R.add(R.multiply(R.divide(y, scalar(3)), positive(4)), normal(4, seed=5))

    check(module([ROWS], body), ["matmul", "add"])


@pytest.mark.parametrize("bias", [False, True])
def test_a_batch_norm_over_the_rows_of_all_samples_goes_into_a_dense_layer(bias: bool) -> None:
    """LeViT's: behind the reshape that makes all rows one axis, it was a scale and a sum."""

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.matmul(x, normal(6, 4)))
        if bias:
            y = bb.emit(R.add(y, normal(4, seed=2)))
        rows = bb.emit(R.reshape(y, (10, 4)))
        statistics = (positive(4), normal(4, seed=3), normal(4, seed=4), positive(4))
        norm = bb.emit(R.nn.batch_norm(rows, *statistics, axis=1, epsilon=1e-3, training=False))
        return bb.emit(R.reshape(bb.emit(relax.TupleGetItem(norm, 0)), (2, 5, 4)))

    check(module([SEQUENCE], body), ["matmul", "add"])


@pytest.mark.parametrize("shape", [(20, 2), (5, 8), (5, 2, 4)])
def test_scales_of_other_features_stay_behind_the_reshape(shape: tuple[int, ...]) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.reshape(bb.emit(R.matmul(x, normal(6, 4))), shape))
        return bb.emit(R.multiply(y, positive(shape[-1])))

    alike = ["matmul", "reshape"] if shape[-1] == 4 else ["matmul", "reshape", "multiply"]
    check(module([SEQUENCE], body), alike)


def test_a_scale_behind_a_reshape_that_others_need_stays() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.reshape(bb.emit(R.matmul(x, normal(6, 4))), (10, 4)))
        return bb.emit(R.add(bb.emit(R.multiply(y, positive(4))), bb.emit(R.tanh(y))))

    check(module([SEQUENCE], body), ["matmul", "reshape", "multiply", "tanh", "add"])


def test_a_bias_is_not_widened() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.add(R.add(R.matmul(x, normal(6, 4)), normal(4)), normal(5, 4, seed=2))

    check(module([SEQUENCE], body), ["matmul", "add", "add"])


def test_constants_in_a_row_are_one() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.subtract(R.add(x, normal(1, 5, 6)), normal(6))
        return R.divide(R.multiply(y, scalar(3)), scalar(7))

    check(module([SEQUENCE], body), ["add", "multiply"])


def test_dense_layer_over_flattened_rows() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.matmul(R.reshape(x, (10, 6)), normal(6, 4))
        return R.reshape(R.add(y, normal(4)), (2, 5, 4))

    check(module([SEQUENCE], body), ["matmul", "add"])


def test_rows_that_are_mixed_stay_flattened() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.reshape(R.matmul(R.reshape(x, (10, 6)), normal(6, 4)), (5, 2, 4))

    check(module([SEQUENCE], body), ["reshape", "matmul", "reshape"])


@pytest.mark.parametrize("square", ["power", "product"])
@pytest.mark.parametrize("root", ["divide", "rsqrt", "reciprocal"])
@pytest.mark.parametrize("axes", [[-1], [1, 2]])
def test_layer_norm_chain(square: str, root: str, axes: list[int]) -> None:
    features = [SEQUENCE[a] for a in axes]

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        d = bb.emit(R.subtract(x, R.mean(x, axis=axes, keepdims=True)))
        # Old exporters subtract a second time.
        again = bb.emit(R.subtract(x, R.mean(x, axis=axes, keepdims=True)))
        power = R.power(again, scalar(2)) if square == "power" else R.multiply(again, again)
        spread = R.add(R.mean(power, axis=axes, keepdims=True), scalar(1e-5))
        if root == "divide":
            y = R.divide(d, R.sqrt(spread))
        elif root == "rsqrt":
            y = R.multiply(d, R.rsqrt(spread))
        else:
            y = R.multiply(R.divide(scalar(1), R.sqrt(spread)), d)
        return R.add(R.multiply(positive(*features), y), normal(*features))

    mod = check(module([SEQUENCE], body), ["nn.layer_norm"])
    call = call_of(mod, "nn.layer_norm")
    assert sorted(int(a) for a in call.attrs.axes) == sorted(a - 3 if a > 0 else a for a in axes)
    assert static_shape(call.args[1]) == tuple(features)
    assert math.isclose(float(call.attrs.epsilon), 1e-5, rel_tol=1e-6)


def test_normalization_over_leading_axes_is_no_layer_norm() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        d = bb.emit(R.subtract(x, R.mean(x, axis=[1], keepdims=True)))
        spread = R.add(R.mean(R.multiply(d, d), axis=[1], keepdims=True), scalar(1e-5))
        return R.divide(d, R.sqrt(spread))

    wanted = ["mean", "subtract", "multiply", "mean", "add", "sqrt", "divide"]
    check(module([SEQUENCE], body), wanted)


@pytest.mark.parametrize("samples, axes", [(1, [2, 3]), (2, [0, 2, 3])])
def test_an_instance_norm_of_one_sample_is_over_its_pixels(samples: int, axes: list[int]) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.nn.instance_norm(x, positive(6), normal(6), channel_axis=1, axes=[0, 2, 3])

    mod = check(module([(samples, 6, 4, 5)], body), ["nn.instance_norm"])
    assert [int(a) for a in call_of(mod, "nn.instance_norm").attrs.axes] == axes


def test_gain_of_a_layer_norm_with_other_users_stays() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.layer_norm(x, positive(6), normal(6), axes=[2]))
        return R.add(R.multiply(y, positive(6, seed=9)), y)

    check(module([SEQUENCE], body), ["nn.layer_norm", "multiply", "add"])


def heads(bb: relax.BlockBuilder, x: relax.Expr, seed: int, order: list[int]) -> relax.Expr:
    y = bb.emit(R.add(R.matmul(x, normal(6, 6, seed=seed)), normal(6, seed=seed + 1)))
    return bb.emit(R.permute_dims(R.reshape(y, (2, 5, 3, 2)), order))


@pytest.mark.parametrize("where", ["product", "query", "both"])
def test_attention_scale_goes_into_the_query_weights(where: str) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        q, k = heads(bb, x, 1, [0, 2, 1, 3]), heads(bb, x, 3, [0, 2, 3, 1])
        if where == "query":
            q = R.multiply(q, scalar(0.7))
        if where == "both":
            q, k = R.multiply(q, scalar(0.8)), R.multiply(k, scalar(0.8))
        scores = R.matmul(q, k)
        return R.nn.softmax(R.divide(scores, scalar(1.4)) if where == "product" else scores)

    movement = ["matmul", "add", "reshape", "permute_dims"]
    check(module([SEQUENCE], body), [*movement, *movement, "matmul", "nn.softmax"])


def test_a_scale_without_a_dense_layer_behind_stays() -> None:
    def body(_: object, q: relax.Expr, k: relax.Expr) -> relax.Expr:
        return R.divide(R.matmul(q, R.permute_dims(k, [0, 2, 1])), scalar(2))

    check(module([SEQUENCE, SEQUENCE], body), ["permute_dims", "matmul", "multiply"])


def test_batches_joined_for_a_product_are_parted_again() -> None:
    def body(_: object, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        product = R.matmul(R.reshape(a, (6, 4, 5)), R.reshape(b, (6, 5, 7)), out_dtype="float32")
        return R.reshape(product, (2, 3, 4, 7))

    check(module([(2, 3, 4, 5), (2, 3, 5, 7)], body), ["matmul"])


def test_folded_weights_are_computed_exactly() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 6), np.float32)

    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.matmul(x, R.permute_dims(relax.const(weights)))

    mod = check(module([ROWS], body), ["matmul"])
    assert np.array_equal(constant(call_of(mod, "matmul").args[1]), weights.T)
