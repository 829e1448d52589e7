"""Convolutions, batch norms, pads and pools: run before and after."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, topi

from collage.backends.relax.static_shape import static_shape
from collage.normalize import normalize
from tests.collage_tests.normalize.oracle import (
    call_of,
    check,
    module,
    normal,
    operators,
    positive,
)

R = relax.op
IMAGE = (2, 4, 9, 7)


def batch_norm(x: relax.Expr, channels: int, **attrs: object) -> relax.Expr:
    return R.nn.batch_norm(
        x,
        positive(channels),
        normal(channels),
        normal(channels, seed=3),
        positive(channels, seed=4),
        axis=1,
        training=False,
        **attrs,
    )


def first(bb: relax.BlockBuilder, norm: relax.Expr) -> relax.Expr:
    return bb.emit(relax.TupleGetItem(bb.emit(norm), 0))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_goes_into_the_convolution(groups: int, bias: bool) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = R.nn.conv2d(x, normal(8, 4 // groups, 3, 3), padding=1, groups=groups)
        if bias:
            y = R.add(y, R.reshape(normal(8, seed=9), (1, -1, 1, 1)))
        return R.nn.relu(first(bb, batch_norm(y, 8)))

    mod = check(module([IMAGE], body), ["nn.conv2d", "add", "nn.relu"])
    assert static_shape(call_of(mod, "add").args[1]) == (1, 8, 1, 1)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize(("name", "space"), [("1d", (9,)), ("2d", (5, 4)), ("3d", (3, 4, 2))])
def test_batch_norm_goes_into_the_transposed_convolution(
    name: str, space: tuple[int, ...], groups: int
) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        weights = normal(8, 12 // groups, *[3] * len(space))
        make = getattr(R.nn, f"conv{name}_transpose")
        y = bb.emit(make(x, weights, strides=[2] * len(space), groups=groups))
        return R.nn.relu(first(bb, batch_norm(y, 12)))

    check(module([(2, 8, *space)], body), [f"nn.conv{name}_transpose", "add", "nn.relu"])


@pytest.mark.parametrize(("center", "scale"), [(True, False), (False, True), (False, False)])
def test_batch_norm_without_gain_or_offset(center: bool, scale: bool) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = R.nn.conv2d(x, normal(8, 4, 1, 1))
        return first(bb, batch_norm(y, 8, center=center, scale=scale))

    check(module([IMAGE], body), ["nn.conv2d", "add"])


def test_batch_norm_after_something_else_is_affine() -> None:
    mod = module([IMAGE], lambda bb, x: first(bb, batch_norm(R.nn.relu(x), 4)))
    call = call_of(check(mod, ["nn.relu", "multiply", "add"]), "multiply")
    assert static_shape(call.args[1]) == (1, 4, 1, 1)


def test_batch_norm_over_another_axis() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        norm = R.nn.batch_norm(
            x, positive(7), normal(7), normal(7), positive(7), axis=3, training=False
        )
        return first(bb, norm)

    check(module([IMAGE], body), ["multiply", "add"])


def test_a_convolution_that_is_used_twice_keeps_its_weights() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, normal(4, 4, 1, 1)))
        return R.add(first(bb, batch_norm(y, 4)), y)

    check(module([IMAGE], body), ["nn.conv2d", "multiply", "add", "add"])


def test_scale_and_shift_per_channel_go_in() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.nn.conv2d(x, normal(8, 4, 3, 3))
        return R.add(R.multiply(y, positive(8, 1, 1)), normal(1, 8, 1, 1))

    check(module([IMAGE], body), ["nn.conv2d", "add"])


def test_a_scale_per_place_stays() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.multiply(R.nn.conv2d(x, normal(8, 4, 1, 1)), positive(1, 1, 9, 7))

    check(module([IMAGE], body), ["nn.conv2d", "multiply"])


def test_one_channel_bias_keeps_its_four_dimensions() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.add(R.nn.conv2d(x, normal(1, 4, 3, 3)), R.reshape(normal(1), (1, 1, 1, 1)))

    mod = check(module([IMAGE], body), ["nn.conv2d", "add"])
    assert static_shape(call_of(mod, "add").args[1]) == (1, 1, 1, 1)


def test_zero_pad_becomes_the_convolutions_padding() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        padded = bb.emit_te(topi.nn.pad, x, [0, 0, 0, 1], [0, 0, 1, 2], 0.0)
        return R.nn.conv2d(padded, normal(8, 4, 3, 3), strides=2, padding=(1, 0, 0, 1))

    call = call_of(check(module([IMAGE], body), ["nn.conv2d"]), "nn.conv2d")
    assert [int(p) for p in call.attrs.padding] == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("width", "fill"), [([0, 0, 1, 0, 0, 0, 0, 0], 0.0), ([0, 0, 0, 0, 1, 1, 1, 1], 1.0)]
)
def test_other_pads_stay(width: list[int], fill: float) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        channels = 4 + width[2] + width[3]
        return R.nn.conv2d(R.nn.pad(x, width, "constant", fill), normal(8, channels, 3, 3))

    check(module([IMAGE], body), ["nn.pad", "nn.conv2d"])


def test_pads_before_pools() -> None:
    width = [0, 0, 0, 0, 1, 0, 0, 1]

    def average(_: object, x: relax.Expr) -> relax.Expr:
        return R.nn.avg_pool2d(R.nn.pad(x, width, "constant", 0.0), (3, 3), (2, 2))

    def maximum(_: object, x: relax.Expr) -> relax.Expr:
        lowest = float("-inf")
        return R.nn.max_pool2d(R.nn.pad(x, width, "constant", lowest), (3, 3), (2, 2))

    check(module([IMAGE], average), ["nn.avg_pool2d"])
    check(module([IMAGE], maximum), ["nn.max_pool2d"])


def test_zeros_before_a_maximum_stay() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        padded = R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 0.0)
        return R.nn.max_pool2d(padded, (3, 3), (2, 2))

    check(module([IMAGE], body), ["nn.pad", "nn.max_pool2d"])


def test_an_average_that_leaves_its_own_pad_out_keeps_the_other() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        padded = R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 0.0)
        return R.nn.avg_pool2d(padded, (3, 3), (1, 1), padding=1, count_include_pad=False)

    check(module([IMAGE], body), ["nn.pad", "nn.avg_pool2d"])


@pytest.mark.parametrize("kind", ["window", "adaptive", "mean"])
def test_global_average_is_mean(kind: str) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        if kind == "window":
            return R.nn.avg_pool2d(x, (9, 7))
        if kind == "adaptive":
            return R.nn.adaptive_avg_pool2d(x, 1)
        return R.mean(x, axis=[-1, -2], keepdims=True)

    call = call_of(check(module([IMAGE], body), ["mean"]), "mean")
    assert [int(a) for a in call.attrs.axis] == [2, 3]


def test_lrn_uses_a_two_dimensional_pool() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        square = R.expand_dims(R.multiply(x, x), axis=1)
        pooled = R.nn.avg_pool3d(
            square, (5, 1, 1), (1, 1, 1), padding=[2, 0, 0, 2, 0, 0], count_include_pad=True
        )
        scaled = R.multiply(R.squeeze(pooled, axis=1), relax.const(1e-1, "float32"))
        power = R.power(R.add(scaled, relax.const(2.0)), relax.const(0.75))
        return R.divide(x, power)

    check(
        module([IMAGE], body),
        ["multiply", "reshape", "nn.avg_pool2d", "reshape", "multiply", "add", "power", "divide"],
    )


def test_names_of_layers_survive() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, normal(8, 4, 1, 1)), name_hint="stem_conv")
        y = bb.emit(R.nn.relu(y), name_hint="stem_relu")
        return bb.emit(R.nn.max_pool2d(y, (2, 2)), name_hint="stem_pool")

    mod = check(module([IMAGE], body), ["nn.conv2d", "nn.relu", "nn.max_pool2d"])
    names = [b.var.name for b in mod["main"].body.blocks[0].bindings]
    assert names[:2] == ["stem_conv", "stem_relu"]


def test_one_spelling_of_the_output_type() -> None:
    weights = normal(8, 4, 1, 1)
    mod = module([IMAGE], lambda _, x: R.nn.conv2d(x, weights, out_dtype="float32"))
    assert not call_of(check(mod, ["nn.conv2d"]), "nn.conv2d").attrs.out_dtype


def test_a_transposed_convolutions_output_type_is_left_out() -> None:
    weights = normal(4, 8, 2, 2)
    mod = module([IMAGE], lambda _, x: R.nn.conv2d_transpose(x, weights, out_dtype="float32"))
    found = check(mod, ["nn.conv2d_transpose"])
    assert not call_of(found, "nn.conv2d_transpose").attrs.out_dtype


_SPACES = {"1d": (9,), "2d": (5, 7), "3d": (5, 6, 7)}


def _beside_a_norm(
    name: str, groups: int, *, first: bool = False, other: bool = False, **attrs: object
) -> tvm.IRModule:
    """A convolution and a norm of the same numbers, added up."""
    space = _SPACES[name]

    def body(_: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        wide = (1, 8, *(1 for _ in space))
        weights = normal(8, 8 // groups, *(3 for _ in space))
        y = getattr(R.nn, f"conv{name}")(x, weights, groups=groups, **attrs)
        y = R.add(y, R.reshape(normal(8, seed=9), wide))
        z = R.nn.relu(x) if other else x
        z = R.multiply(z, R.reshape(normal(8, seed=5), wide))
        z = R.add(z, R.reshape(normal(8, seed=6), wide))
        return R.tanh(R.add(z, y) if first else R.add(y, z))

    return module([(2, 8, *space)], body)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("name", _SPACES)
def test_scaled_inputs_go_into_the_taps_in_the_middle(name: str, groups: int, first: bool) -> None:
    wanted = [f"nn.conv{name}", "add", "tanh"]
    check(_beside_a_norm(name, groups, first=first, padding=1), wanted)
    check(_beside_a_norm(name, groups, padding=2, dilation=2), wanted)


def test_scaled_inputs_that_no_tap_reads_stay() -> None:
    for mod in (
        _beside_a_norm("2d", 2, other=True, padding=1),
        _beside_a_norm("2d", 2, padding=(0, 0, 2, 2)),
    ):
        assert "multiply" in operators(normalize(mod))
