"""Channels last and joined dense layers: the same outputs, and no more permutations than needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from benchmarks.models import before_softmax, light_model, light_model_names, random_inputs
from benchmarks.tiny import tiny_bert, tiny_mobilenet
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.passes.channels_last import to_channels_last
from collage.passes.channels_last_rules import CONVOLUTIONS
from collage.passes.combine_parallel_matmul import combine_parallel_matmul
from collage.rewrite import flat_bindings, op_name
from collage.testing.graphs import graph

op = relax.op
Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[..., relax.Expr]

LIGHT_ERROR = 1e-5
"""Only the order of sums may differ."""


def build(body: Body, *shapes: Sequence[int], dtype: str = "float32") -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes; ``body`` gets ``emit`` and them."""
    return graph(shapes, body, dtype)


def weights(*shape: int, seed: int = 0, dtype: str = "float32", scale: float = 1.0) -> relax.Expr:
    array = np.random.default_rng(seed).standard_normal(shape, np.float32) * scale
    return relax.const(array.astype(dtype), dtype)


def conv(emit: Emit, x: relax.Expr, width: int, depth: int, kernel: int = 3, **attrs: Any) -> Any:
    """A convolution that keeps the plane, with a bias."""
    padding = [kernel // 2] * 4
    groups = attrs.get("groups", 1)
    dtype = str(x.ty.dtype)
    w = weights(width, depth // groups, kernel, kernel, seed=width, dtype=dtype)
    result = emit(op.nn.conv2d(x, w, padding=padding, **attrs))
    return emit(op.add(result, weights(1, width, 1, 1, seed=depth, dtype=dtype)))


def operators(mod: tvm.IRModule) -> Counter[str]:
    return Counter(op_name(value) for _, value in flat_bindings(mod["main"]))


def check(mod: tvm.IRModule, permutes: int, rtol: float = LIGHT_ERROR) -> tvm.IRModule:
    """Rewrite, compare with the original on random inputs, and count the permutations."""
    last = to_channels_last(mod)
    random = np.random.default_rng()
    inputs = [
        random.standard_normal(static_shape(p), np.float32).astype(str(p.ty.dtype))
        for p in mod["main"].params
    ]
    for got, wanted in zip(evaluate(last, inputs), evaluate(mod, inputs), strict=True):
        assert largest_error(got, wanted) <= rtol
    assert operators(last)["permute_dims"] == permutes
    for _, value in flat_bindings(last["main"]):
        if op_name(value) in CONVOLUTIONS:
            attrs = value.attrs
            space = "DHW"[3 - len(attrs.strides) :]
            kernel = f"I{space}O" if "transpose" in op_name(value) else f"O{space}I"
            layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
            assert layouts == (f"N{space}C", kernel, f"N{space}C")
    return last


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("vgg19", "zfnet512") else name
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


def test_projections_of_one_input_become_one() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        q = emit(op.add(emit(op.matmul(x, weights(16, 16, seed=1))), weights(16, seed=2)))
        scaled = emit(op.multiply(q, relax.const(2.0, "float32")))
        k = emit(op.add(emit(op.matmul(x, weights(16, 24, seed=3))), weights(24, seed=4)))
        v = emit(op.add(emit(op.matmul(x, weights(16, 8, seed=5))), weights(8, seed=6)))
        plain = emit(op.matmul(x, weights(16, 4, seed=7)))
        return relax.Tuple([scaled, k, v, plain])

    mod = build(body, (2, 5, 16))
    joined = combine_parallel_matmul(mod)
    assert operators(joined)["matmul"] == 2  # the one without a bias stands alone
    assert operators(joined)["split"] == 1
    value = np.random.default_rng().standard_normal((2, 5, 16), np.float32)
    for got, wanted in zip(evaluate(joined, [value]), evaluate(mod, [value]), strict=True):
        assert largest_error(got, wanted) <= LIGHT_ERROR


def test_bert_has_one_projection_per_layer() -> None:
    model = tiny_bert()
    imported = load_model(model)
    mod = normalize(imported.mod)
    joined = combine_parallel_matmul(mod)
    assert operators(joined)["matmul"] == operators(mod)["matmul"] - 2 * operators(joined)["split"]
    assert operators(joined)["split"] > 0
    feeds = random_inputs(model, 9, vocabulary=32)
    inputs = [feeds[spec.name] for spec in imported.inputs]
    for got, wanted in zip(evaluate(joined, inputs), evaluate(mod, inputs), strict=True):
        assert largest_error(got, wanted) <= LIGHT_ERROR


def test_nothing_to_join_changes_nothing() -> None:
    mod = build(lambda emit, x: op.matmul(x, weights(16, 4)), (3, 16))
    assert combine_parallel_matmul(mod) is mod


def convolved(emit: Emit, x: relax.Expr, width: int, depth: int, kernel: int = 3, **a: Any) -> Any:
    """A convolution of any rank that keeps the extents, with a bias."""
    rank = len(x.ty.shape) - 2
    # Values stay near one, so that a gate's rounding does not grow with them.
    w = weights(width, depth, *[kernel] * rank, seed=width, scale=(depth * kernel**rank) ** -0.5)
    y = emit(getattr(op.nn, f"conv{rank}d")(x, w, padding=[kernel // 2] * 2 * rank, **a))
    return emit(op.add(y, weights(1, width, *[1] * rank, seed=depth)))


def doubled(emit: Emit, x: relax.Expr, width: int, depth: int) -> Any:
    """A transposed convolution that doubles the extents."""
    rank = len(x.ty.shape) - 2
    w = weights(depth, width, *[4] * rank, seed=width, scale=(depth * 2**rank) ** -0.5)
    make = getattr(op.nn, f"conv{rank}d_transpose")
    return emit(make(x, w, strides=[2] * rank, padding=[1] * 2 * rank))


SPACES = [(12,), (6, 8), (4, 6, 5)]


@pytest.mark.parametrize("space", SPACES)
def test_every_rank_and_its_transpose(space: tuple[int, ...]) -> None:
    rank = len(space)

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        first = emit(op.nn.relu(convolved(emit, x, 8, 3)))
        pooled = emit(
            getattr(op.nn, f"max_pool{rank}d")(
                first, [3] * rank, strides=[2] * rank, padding=[1] * 2 * rank
            )
        )
        wide = emit(op.add(convolved(emit, pooled, 8, 8), pooled))
        mean = emit(getattr(op.nn, f"avg_pool{rank}d")(wide, [2] * rank))
        up = doubled(emit, mean, 4, 8)
        squeezed = emit(op.mean(up, axis=list(range(2, rank + 2)), keepdims=True))
        return op.multiply(up, emit(op.sigmoid(squeezed)))

    check(build(body, (2, 3, *space)), permutes=2)


@pytest.mark.parametrize("space", SPACES)
def test_norms_that_name_their_axes_follow(space: tuple[int, ...]) -> None:
    axes = list(range(2, len(space) + 2))

    def body(emit: Emit, x: relax.Expr, gain: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        y = emit(op.nn.group_norm(y, gain, weights(8), 4, channel_axis=1, axes=axes))
        y = emit(op.nn.silu(y))
        y = emit(op.nn.instance_norm(y, weights(8), gain, channel_axis=1, axes=axes))
        return convolved(emit, y, 4, 8)

    check(build(body, (2, 3, *space), (8,)), permutes=2)


@pytest.mark.parametrize("space", SPACES)
def test_dense_layers_after_a_flattened_volume_follow(space: tuple[int, ...]) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        flat = emit(op.reshape(y, (2, 8 * int(np.prod(space)))))
        return op.matmul(flat, weights(8 * int(np.prod(space)), 5))

    check(build(body, (2, 3, *space)), permutes=1)


def test_sequences_go_into_a_one_dimensional_convolution_as_they_are() -> None:
    """(batch, length, channels) is channels last; the permutations around are undone."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, emit(op.permute_dims(x, [0, 2, 1])), 8, 8)
        y = emit(op.permute_dims(emit(op.nn.gelu(y)), [0, 2, 1]))
        return op.add(y, x)

    check(build(body, (2, 16, 8)), permutes=0)


def test_mixing_tokens_beside_convolutions_costs_no_more_permutations() -> None:
    """Of three axes nobody knows whether a permutation brings channels first."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        image = conv(emit, x, 8, 3)
        tokens = emit(op.permute_dims(emit(op.reshape(image, (1, 8, 36))), [0, 2, 1]))
        turned = emit(op.permute_dims(tokens, [0, 2, 1]))
        mixed = emit(op.matmul(turned, weights(36, 36)))
        tokens = emit(op.add(tokens, emit(op.permute_dims(mixed, [0, 2, 1]))))
        return op.nn.layer_norm(tokens, weights(8), weights(8), axes=[-1])

    check(build(body, (1, 3, 6, 6)), permutes=3)


def test_what_has_an_axis_follows() -> None:
    """PReLUs, padding by reflection (which is a gather) and nearest neighbours."""
    mirrored = relax.const(np.array([1, 0, 1, 2, 3, 4, 5, 4]))

    def body(emit: Emit, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
        y = emit(op.nn.prelu(conv(emit, x, 8, 3), slope, axis=1))
        y = emit(op.take(emit(op.take(y, mirrored, axis=2)), mirrored, axis=3))
        y = emit(op.repeat(emit(op.repeat(y, 2, axis=2)), 2, axis=-1))
        return conv(emit, emit(op.flip(y, axis=1)), 4, 8)

    check(build(body, (2, 3, 6, 6), (8,)), permutes=2)


@pytest.mark.parametrize("blocks_first", [False, True])
def test_pixels_are_shuffled_by_one_permutation(blocks_first: bool) -> None:
    split = (2, 3, 3, 2, 6, 5) if blocks_first else (2, 2, 3, 3, 6, 5)
    order = [0, 3, 4, 1, 5, 2] if blocks_first else [0, 1, 4, 2, 5, 3]

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        blocks = emit(op.reshape(conv(emit, x, 18, 3), split))
        y = emit(op.reshape(emit(op.permute_dims(blocks, order)), (2, 2, 18, 15)))
        return conv(emit, emit(op.nn.relu(y)), 4, 2)

    check(build(body, (2, 3, 6, 5)), permutes=3)


@pytest.mark.parametrize("space", SPACES)
def test_convolutions_of_single_places_are_products(space: tuple[int, ...]) -> None:
    """Of two axes every library knows the convolution."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.gelu(convolved(emit, x, 8, 3)))
        wide = emit(op.nn.silu(convolved(emit, y, 16, 8, 1)))
        strided = convolved(emit, wide, 8, 16, 1, strides=2)
        return emit(op.nn.relu(strided))

    found = operators(check(build(body, (2, 3, *space)), permutes=2))
    assert found["matmul"] == (len(space) != 2)
    assert found[f"nn.conv{len(space)}d"] == 3 - (len(space) != 2)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
@pytest.mark.parametrize("space", SPACES[1:])
def test_resizing_follows(space: tuple[int, ...], method: str) -> None:
    resize = op.image.resize2d if len(space) == 2 else op.image.resize3d
    layout = "NCHW" if len(space) == 2 else "NCDHW"

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = convolved(emit, x, 8, 3)
        size = relax.ShapeExpr([2 * n for n in space])
        y = emit(resize(y, size, layout=layout, method=method))
        return convolved(emit, emit(op.nn.relu(y)), 4, 8)

    check(build(body, (2, 3, *space)), permutes=2)
