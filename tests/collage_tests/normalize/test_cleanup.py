"""Data movement, constants, n-ary operators and opaque programs: run before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, topi

from collage.backends.contract.errors import ModelError
from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate, largest_error
from collage.normalize import normalize
from tests.collage_tests.normalize.oracle import (
    call_of,
    check,
    module,
    normal,
    operators,
    random_inputs,
    run,
)

R = relax.op
IMAGE = (1, 3, 8, 6)


def test_reshapes_of_every_kind_are_one() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.squeeze(R.expand_dims(R.flatten(x), axis=0), axis=[0])
        return R.nn.relu(R.reshape(y, (3, 48)))

    check(module([IMAGE], body), ["reshape", "nn.relu"])


def test_reshapes_that_end_where_they_began_are_none() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.nn.relu(R.reshape(R.reshape(x, (3, 48)), IMAGE))

    check(module([IMAGE], body), ["nn.relu"])


def test_permutations() -> None:
    def twice(_: object, x: relax.Expr) -> relax.Expr:
        return R.permute_dims(R.permute_dims(x, [0, 2, 3, 1]), [0, 3, 2, 1])

    def unit(_: object, x: relax.Expr) -> relax.Expr:
        return R.permute_dims(x, [1, 0, 2, 3])

    def back(_: object, x: relax.Expr) -> relax.Expr:
        return R.exp(R.permute_dims(R.permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2]))

    check(module([IMAGE], twice), ["permute_dims"])
    check(module([IMAGE], unit), ["reshape"])
    check(module([IMAGE], back), ["exp"])


@pytest.mark.parametrize(
    ("shape", "between", "axes", "after", "left"),
    [
        ((1, 5, 6, 7), (1, 5, 1, 6, 7), [1, 4, 0, 3, 2], (5, 7, 6), ["reshape", "permute_dims"]),
        ((5, 6, 7), (5, 6, 1, 1, 7), [3, 1, 0, 4, 2], (1, 6, 5, 7), ["reshape", "permute_dims"]),
        ((5, 5, 1, 5), (5, 1, 5, 5), [2, 1, 3, 0], (5, 5, 5), ["reshape", "permute_dims"]),
        ((5, 6), (1, 5, 6, 1), [3, 1, 0, 2], (5, 1, 6), ["reshape"]),
        ((5, 12), (5, 1, 3, 4), [2, 1, 3, 0], (3, 4, 5), ["reshape", "permute_dims", "reshape"]),
    ],
)
def test_permutations_between_units(
    shape: tuple[int, ...],
    between: tuple[int, ...],
    axes: list[int],
    after: tuple[int, ...],
    left: list[str],
) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.exp(R.reshape(R.permute_dims(R.reshape(x, between), axes), after))

    check(module([shape], body), [*left, "exp"])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_chain_of_data_movement_keeps_its_values(data: st.DataObject) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        for _ in range(data.draw(st.integers(1, 6))):
            shape = static_shape(x)
            kind = data.draw(st.sampled_from(["permute", "expand", "squeeze", "flatten", "slice"]))
            if kind == "permute":
                x = R.permute_dims(x, data.draw(st.permutations(range(len(shape)))))
            elif kind == "expand" and len(shape) < 6:
                x = R.expand_dims(x, data.draw(st.integers(0, len(shape))))
            elif kind == "squeeze" and 1 in shape and len(shape) > 1:
                x = R.squeeze(x, [shape.index(1)])
            elif kind == "flatten":
                x = R.reshape(x, (shape[0], -1))
            else:
                axis = data.draw(st.integers(0, len(shape) - 1))
                end = data.draw(st.integers(1, shape[axis]))
                x = R.strided_slice(x, [axis], [0], [end])
            x = bb.emit(x)
        return x

    mod = module([(2, 1, 3, 4)], body)
    inputs = random_inputs(mod)
    normal_form = normalize(mod)
    (after,), (before,) = evaluate(normal_form, inputs), evaluate(mod, inputs)
    assert np.array_equal(after, before)
    assert not set(operators(normal_form)) & {"expand_dims", "squeeze", "flatten"}


def test_dropout_and_casts_to_the_same_type_go() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        dropped = bb.emit(relax.TupleGetItem(bb.emit(R.nn.dropout(x, 0.5)), 0))
        return R.nn.relu(R.astype(dropped, "float32"))

    check(module([IMAGE], body), ["nn.relu"])


def test_explicit_broadcasts_are_left_to_the_operators() -> None:
    def body(_: object, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        shape = relax.ShapeExpr(IMAGE)
        both = R.add(R.broadcast_to(x, shape), R.broadcast_to(y, shape))
        return R.where(R.greater(both, relax.const(0.0)), both, R.zeros_like(both))

    check(module([IMAGE, (3, 1, 1)], body), ["add", "greater", "where"])


def test_a_broadcast_that_makes_the_shape_stays() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.multiply(R.broadcast_to(x, relax.ShapeExpr((4, 3))), relax.const(2.0))

    check(module([(3,)], body), ["broadcast_to", "multiply"])


def test_neutral_elements_go() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        y = R.divide(R.multiply(R.add(x, relax.const(0.0)), relax.const(1.0)), relax.const(1.0))
        return R.exp(
            R.power(
                R.subtract(y, relax.const(np.zeros((3, 1, 1), "float32"))), R.ones((1,), "float32")
            )
        )

    check(module([IMAGE], body), ["exp"])


def test_a_neutral_element_that_broadcasts_stays() -> None:
    ones = relax.const(np.ones((4, 1, 1, 1), "float32"))
    mod = module([IMAGE], lambda _, x: R.multiply(x, ones))
    check(mod, ["multiply"])


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("reduce", "binary"),
    [(R.sum, "add"), (R.max, "maximum"), (R.min, "minimum"), (R.mean, "add")],
)
def test_nary_operators_become_chains(
    count: int, reduce: Callable[..., relax.Expr], binary: str
) -> None:
    def body(bb: relax.BlockBuilder, *xs: relax.Expr) -> relax.Expr:
        wide = [bb.emit(R.broadcast_to(x, relax.ShapeExpr(IMAGE))) for x in xs]
        return reduce(bb.emit(R.stack(wide, axis=0)), axis=0)

    shapes = [IMAGE, (3, 1, 1), IMAGE][:count]
    wanted = [binary] * (count - 1) + (["multiply"] if reduce is R.mean else [])
    check(module(shapes, body), wanted)


@pytest.mark.parametrize("axis", [1, -1])
def test_parts_without_elements_are_not_joined(axis: int) -> None:
    nothing = relax.const(np.zeros((2, 0), "float32"))

    def body(_: object, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return R.nn.relu(R.concat([nothing, x, nothing, y], axis))

    check(module([(2, 3), (2, 4)], body), ["concat", "nn.relu"])
    alone = module([(2, 3)], lambda _, x: R.nn.relu(R.concat([x, nothing], axis)))
    check(alone, ["nn.relu"])


def test_stack_is_concat_with_an_inline_tuple() -> None:
    mod = check(
        module([(2, 3), (2, 3)], lambda bb, x, y: R.stack([x, y], 1)),
        ["reshape", "reshape", "concat"],
    )
    assert isinstance(call_of(mod, "concat").args[0], relax.Tuple)
    tupled = module([(2, 3), (2, 3)], lambda bb, x, y: R.concat(bb.emit(relax.Tuple([x, y])), 1))
    check(tupled, ["concat"])


def test_equal_work_is_done_once_and_dead_work_never() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        bb.emit(R.exp(x))
        left = bb.emit(R.multiply(x, normal(3, 1, 1)))
        right = bb.emit(R.multiply(x, normal(3, 1, 1)))
        return R.add(R.tanh(left), R.sigmoid(right))

    check(module([IMAGE], body), ["multiply", "tanh", "sigmoid", "add"])


def test_constants_are_folded_without_compiling() -> None:
    table = np.arange(24, dtype=np.float32).reshape(4, 6)

    def body(_: object, x: relax.Expr) -> relax.Expr:
        part = R.take(relax.const(table), relax.const(np.array([2, 0])), axis=0)
        part = R.concat([part, R.full((1, 6), relax.const(3.0), "float32")], axis=0)
        part = R.strided_slice(R.permute_dims(part), [0], [5], [-7], [-2])
        return R.add(x, R.sqrt(R.maximum(part, relax.const(1.0))))

    check(module([(3, 3)], body), ["add"])


OPAQUE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "zeros": (topi.nn.pad, ([0, 0, 1, 0], [0, 0, 2, 3], 0.0), "nn.pad"),
    "filled": (topi.nn.pad, ([0, 1, 0, 0], [0, 0, 0, 1], 1.5), "nn.pad"),
    "mirrored": (topi.nn.mirror_pad, ([0, 0, 1, 2], [0, 0, 2, 1], "REFLECT"), "nn.pad"),
    "replicated": (topi.nn.replicate_pad, ([0, 0, 1, 2], [0, 0, 2, 0]), "nn.pad"),
    "circular": (topi.nn.circular_pad, ([0, 0, 1, 2], [0, 0, 0, 1]), "nn.pad"),
    "tiled": (topi.tile, ([1, 2, 1, 3],), "tile"),
    "flipped": (topi.flip, (2,), "flip"),
    "bounded": (topi.maximum, (0.25,), "maximum"),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_tensor_programs_are_read_back(name: str) -> None:
    function, arguments, operator = OPAQUE[name]
    mod = module([IMAGE], lambda bb, x: bb.emit_te(function, x, *arguments))
    normal_form = normalize(mod)
    assert operators(normal_form) == [operator]
    assert len(normal_form.functions) == 1
    inputs = random_inputs(mod)
    # TVM runs both: the numpy oracle would itself have to be told what the program means.
    assert largest_error(run(normal_form, inputs)[0], run(mod, inputs)[0]) < 1e-6


def test_a_tensor_program_of_another_meaning_is_kept() -> None:
    def pad(x: Any) -> Any:
        """Carries the name of a pad, and adds one to what it moves."""
        return topi.add(topi.nn.pad(x, [0, 0, 1, 1], [0, 0, 1, 1], 0.0), 1.0)

    mod = module([IMAGE], lambda bb, x: bb.emit_te(pad, x, primfunc_name_hint="pad"))
    assert operators(normalize(mod)) == ["call_tir"]


def test_control_flow_is_refused_by_name() -> None:
    builder = relax.BlockBuilder()
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", params=[flag, x]):
        branch = relax.SeqExpr([], x)
        choice = builder.emit(relax.If(flag, branch, branch), name_hint="choice")
        builder.emit_func_output(choice)
    with pytest.raises(ModelError, match="'choice' is control flow"):
        normalize(builder.get())


def test_several_outputs_keep_their_order() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = bb.emit(R.nn.relu(x))
        return relax.Tuple([y, bb.emit(R.exp(y)), x])

    check(module([IMAGE], body), ["nn.relu", "exp", "Tuple"])


@pytest.mark.parametrize("outer", [(2,), (2, 3)])
def test_pixels_are_shuffled(outer: tuple[int, ...]) -> None:
    """TVM has no program for the operator: the module before cannot be run."""
    mod = normalize(module([(*outer, 18, 3, 4)], lambda _, x: R.nn.pixel_shuffle(x, 3)))
    assert operators(mod) == ["reshape", "permute_dims", "reshape"]
    (x,) = random_inputs(mod)
    (actual,) = evaluate(mod, [x])
    assert actual.shape == (*outer, 2, 9, 12)
    for c, y, z in np.ndindex(2, 9, 12):
        channel = c * 9 + y % 3 * 3 + z % 3
        assert np.array_equal(actual[..., c, y, z], x[..., channel, y // 3, z // 3])


def test_what_is_not_itself_is_not_a_number() -> None:
    """A compiler may decide before it runs that nothing differs from itself."""

    def body(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = builder.emit(R.multiply(x, relax.const(2.0)))
        same = builder.emit(R.where(R.equal(y, y), y, relax.const(7.0)))
        return R.add(same, R.astype(R.not_equal(x, x), "float32"))

    mod = normalize(module([(5,)], body))
    assert "isnan" in operators(mod)
    assert not {"equal", "not_equal"} & {*operators(mod)}
    x = np.array([np.nan, np.inf, -np.inf, 0, 1.5], "float32")
    wanted = np.array([8, np.inf, -np.inf, 0, 3], "float32")
    for (found,) in (evaluate(mod, [x]), run(mod, [x])):
        np.testing.assert_array_equal(found, wanted)


def test_truth_values_multiplied() -> None:
    """As ``isfinite`` is taken apart: TVM could not compile it."""

    def body(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        bounded = builder.emit(R.not_equal(R.abs(x), relax.const(np.float32("inf"))))
        return R.multiply(R.equal(x, x), bounded)

    mod = normalize(module([(5,)], body))
    x = np.array([np.nan, np.inf, -np.inf, 0, 1.5], "float32")
    for (found,) in (evaluate(mod, [x]), run(mod, [x])):
        np.testing.assert_array_equal(found, np.isfinite(x))
