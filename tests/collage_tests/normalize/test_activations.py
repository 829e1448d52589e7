"""Activation chains, bounds and attention guards: run before and after."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, topi

from collage.backends.relax.static_shape import static_shape
from collage.cost.reference import evaluate
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
SHAPE = (2, 3, 8)


def scalar(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def times(scale: float, x: relax.Expr, swap: bool) -> relax.Expr:
    return R.multiply(scalar(scale), x) if swap else R.multiply(x, scalar(scale))


@pytest.mark.parametrize(
    ("half", "swap", "divide"), list(itertools.product(range(3), [0, 1], [0, 1]))
)
def test_erf_gelu_in_every_order(half: int, swap: int, divide: int) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        root = math.sqrt(2)
        inner = R.divide(x, scalar(root)) if divide else times(1 / root, x, bool(swap))
        gate = R.add(R.erf(inner), scalar(1)) if swap else R.add(scalar(1), R.erf(inner))
        if half == 0:
            return times(0.5, R.multiply(x, gate), bool(swap))
        if half == 1:
            return R.multiply(times(0.5, x, bool(swap)), gate)
        return R.multiply(x, times(0.5, gate, bool(swap)))

    check(module([SHAPE], body), ["nn.gelu"])


@pytest.mark.parametrize("cube", ["power", "products", "factored"])
def test_tanh_gelu(cube: str) -> None:
    root = math.sqrt(2 / math.pi)

    def body(_: object, x: relax.Expr) -> relax.Expr:
        if cube == "factored":
            square = R.add(R.multiply(R.multiply(x, x), scalar(0.044715)), scalar(1))
            inner = R.multiply(R.multiply(x, scalar(root)), square)
        else:
            third = R.power(x, scalar(3)) if cube == "power" else R.multiply(x, R.multiply(x, x))
            inner = R.multiply(scalar(root), R.add(x, R.multiply(scalar(0.044715), third)))
        gate = R.add(scalar(1), R.tanh(inner))
        return R.multiply(R.multiply(scalar(0.5), x), gate)

    check(module([SHAPE], body), ["nn.gelu_tanh"])


def test_other_factors_are_no_gelu() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        gate = R.add(R.erf(R.multiply(x, scalar(0.9))), scalar(1))
        return R.multiply(R.multiply(x, gate), scalar(0.5))

    check(module([SHAPE], body), ["multiply", "erf", "add", "multiply", "multiply"])


def test_gelu_keeps_an_intermediate_that_is_used_elsewhere() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        gate = bb.emit(R.add(R.erf(R.divide(x, scalar(math.sqrt(2)))), scalar(1)))
        return relax.Tuple([bb.emit(R.multiply(R.multiply(x, gate), scalar(0.5))), gate])

    check(module([SHAPE], body), ["multiply", "erf", "add", "nn.gelu", "Tuple"])


def test_silu_and_sigmoid_chains() -> None:
    check(module([SHAPE], lambda _, x: R.multiply(R.sigmoid(x), x)), ["nn.silu"])
    check(
        module([SHAPE], lambda _, x: R.divide(scalar(1), R.add(scalar(1), R.exp(R.negative(x))))),
        ["sigmoid"],
    )
    check(module([SHAPE], lambda _, x: R.log(R.add(R.exp(x), scalar(1)))), ["nn.softplus"])


def _guarded_softplus(beta: float, bound: float, divisor: float) -> tvm.IRModule:
    """As PyTorch's exporter takes softplus apart."""

    def body(_: object, x: relax.Expr) -> relax.Expr:
        x = R.multiply(x, scalar(20))
        y = x if beta == 1.0 else R.multiply(x, scalar(beta))
        soft = R.log(R.add(R.exp(y), scalar(1)))
        soft = soft if divisor == 1.0 else R.divide(soft, scalar(divisor))
        return R.where(R.greater(y, scalar(bound)), x, soft)

    return module([(4, 33)], body)


@pytest.mark.parametrize(("beta", "bound"), [(1.0, 20.0), (2.0, 20.0), (0.3, 25.0)])
def test_softplus_without_its_guard(beta: float, bound: float) -> None:
    found = check(_guarded_softplus(beta, bound, beta), ["multiply", "nn.softplus"])
    attrs = call_of(found, "nn.softplus").attrs
    assert (float(attrs.beta), float(attrs.threshold)) == (pytest.approx(beta), bound)


@pytest.mark.parametrize(
    ("beta", "bound", "divisor"), [(1.0, 2.0, 1.0), (2.0, 20.0, 3.0), (2.0, 20.0, 1.0)]
)
def test_guards_that_change_numbers_stay(beta: float, bound: float, divisor: float) -> None:
    assert "where" in operators(normalize(_guarded_softplus(beta, bound, divisor)))


@pytest.mark.parametrize("style", ["divided", "scaled", "relu6", "gate"])
def test_hard_swish_and_hard_sigmoid(style: str) -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        line = R.add(x, scalar(3))
        if style == "relu6":
            return R.multiply(R.multiply(x, R.nn.relu6(line)), scalar(1 / 6))
        bounded = R.clip(line, 0, 6)
        if style == "gate":
            return R.divide(bounded, scalar(6))
        if style == "scaled":
            return R.multiply(R.multiply(x, bounded), scalar(1 / 6))
        return R.multiply(x, R.divide(bounded, scalar(6)))

    wanted = ["multiply", "add", "clip"] + ([] if style == "gate" else ["multiply"])
    call = call_of(check(module([SHAPE], body), wanted), "clip")
    assert [float(a.value) for a in call.args[1:]] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.0, 6.0, ["clip"]),
        (0.0, math.inf, ["nn.relu"]),
        (-math.inf, 0.5, ["minimum"]),
        (-0.25, math.inf, ["maximum"]),
        (math.nan, 0.5, ["minimum"]),
        (-0.5, math.nan, ["maximum"]),
    ],
)
def test_clip_as_the_onnx_importer_leaves_it(low: float, high: float, wanted: list[str]) -> None:
    def bound(bb: relax.BlockBuilder, value: float, unbounded: float) -> relax.Expr:
        const = relax.const(np.float32(value))
        return bb.emit(R.where(R.isnan(const), relax.const(np.float32(unbounded)), const))

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = bb.emit_te(topi.maximum, x, bound(bb, low, -math.inf))
        return bb.emit_te(topi.minimum, x, bound(bb, high, math.inf))

    check(module([SHAPE], body), wanted)


@pytest.mark.parametrize("half", [False, True])
def test_where_bounds_cross_the_upper_one_holds(half: bool) -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return (
            R.minimum(R.maximum(x, relax.const(1.0)), relax.const(-1.0))
            if half
            else R.clip(x, 1, -1)
        )

    mod = normalize(module([SHAPE], body))
    assert operators(mod) == ["clip"]
    (x,) = random_inputs(mod)
    for found in (evaluate(mod, [x]), run(mod, [x])):
        np.testing.assert_array_equal(found[0], np.full(SHAPE, -1, "float32"))


def test_old_clip_with_immediate_bounds() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return bb.emit_te(topi.minimum, bb.emit_te(topi.maximum, x, 0.0), 6.0)

    mod = check(module([SHAPE], body), ["clip"])
    assert len(mod.functions) == 1


def test_bounds_in_a_row_are_one() -> None:
    check(module([SHAPE], lambda _, x: R.clip(R.nn.relu(x), -1, 0.5)), ["clip"])
    check(module([SHAPE], lambda _, x: R.nn.relu(R.maximum(x, scalar(-2)))), ["nn.relu"])


def test_leaky_relu_written_as_where() -> None:
    def body(_: object, x: relax.Expr) -> relax.Expr:
        return R.where(R.less(x, scalar(0)), R.multiply(x, scalar(0.1)), x)

    check(module([SHAPE], body), ["nn.leakyrelu"])


@pytest.mark.parametrize("test", [R.greater, R.greater_equal, R.less])
@pytest.mark.parametrize("shape, axis", [((1, 6, 1, 1), 1), ((6, 1, 1), 1), ((5,), 3)])
def test_prelu_as_pytorch_exports_it(
    test: Callable[..., relax.Expr], shape: tuple[int, ...], axis: int
) -> None:
    slopes = normal(*shape, seed=3)

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        scaled = bb.emit(R.multiply(x, slopes))
        sides = (scaled, x) if test is R.less else (x, scaled)
        return R.where(bb.emit(test(x, scalar(0))), *sides)

    call = call_of(check(module([(2, 6, 4, 5)], body), ["nn.prelu"]), "nn.prelu")
    assert (int(call.attrs.axis), static_shape(call.args[1])) == (axis, (max(shape),))


def test_slopes_of_several_axes_are_no_prelu() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        scaled = bb.emit(R.multiply(x, normal(6, 4, 1, seed=3)))
        return R.where(bb.emit(R.greater(x, scalar(0))), x, scaled)

    check(module([(2, 6, 4, 5)], body), ["multiply", "greater", "where"])


def test_slopes_of_bfloat16_are_no_prelu() -> None:
    """TVM's operator takes none."""
    slopes = relax.const(np.arange(6).reshape(6, 1, 1), "bfloat16")

    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        x = bb.emit(R.astype(x, "bfloat16"))
        scaled = bb.emit(R.multiply(x, slopes))
        found = bb.emit(R.where(R.greater(x, relax.const(0, "bfloat16")), x, scaled))
        return R.astype(found, "float32")

    check(module([(2, 6, 4, 5)], body), ["astype", "multiply", "greater", "where", "astype"])


def test_softmax_written_out() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        e = bb.emit(R.exp(R.subtract(x, R.max(x, axis=[-1], keepdims=True))))
        return R.divide(e, R.sum(e, axis=[-1], keepdims=True))

    check(module([SHAPE], body), ["nn.softmax"])


def test_a_shift_along_another_axis_is_kept_out_of_softmax() -> None:
    def body(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        e = bb.emit(R.exp(R.subtract(x, R.max(x, axis=[1], keepdims=True))))
        return R.divide(e, R.sum(e, axis=[2], keepdims=True))

    check(module([SHAPE], body), ["max", "subtract", "nn.softmax"])


def guarded(mask: relax.Expr | None, scores: relax.Expr, bb: relax.BlockBuilder) -> relax.Expr:
    if mask is not None:
        scores = bb.emit(R.add(scores, mask))
    p = bb.emit(R.nn.softmax(scores, axis=-1))
    return R.where(R.isnan(p), scalar(0), p)


def test_guard_goes_where_no_row_can_be_masked() -> None:
    causal = np.triu(np.full((4, 4), -np.inf, np.float32), 1)

    def body(mask: relax.Expr | None) -> Callable[..., relax.Expr]:
        return lambda bb, x: guarded(mask, bb.emit(R.matmul(x, x)), bb)

    mod = module([(2, 4, 4)], body(relax.const(causal)))
    check(mod, ["matmul", "add", "nn.softmax"])
    check(module([(2, 4, 4)], body(None)), ["matmul", "nn.softmax"])


def test_guard_stays_where_a_row_can_be_masked() -> None:
    lost = np.zeros((4, 4), np.float32)
    lost[2] = -np.inf
    mod = module([(2, 4, 4)], lambda bb, x: guarded(relax.const(lost), x, bb))
    assert "isnan" in operators(check(mod, ["add", "nn.softmax", "isnan", "where"]))

    def from_input(bb: relax.BlockBuilder, x: relax.Expr, keep: relax.Expr) -> relax.Expr:
        allowed = R.greater(keep, scalar(0))
        mask = bb.emit(R.where(allowed, scalar(0), scalar(-math.inf)))
        return guarded(mask, x, bb)

    def added(bb: relax.BlockBuilder, x: relax.Expr, mask: relax.Expr) -> relax.Expr:
        return guarded(mask, bb.emit(R.matmul(x, x)), bb)

    biases = np.zeros((2, 1, 4), np.float32)
    biases[1] = -np.inf
    check(
        module([(2, 4, 4), (2, 1, 4)], added),
        ["matmul", "add", "nn.softmax", "isnan", "where"],
        inputs=[np.ones((2, 4, 4), np.float32), biases],
    )
    masked = np.array([[1, 1, 0, 1], [-1, -1, -1, -1]], np.float32).reshape(2, 1, 4)
    scores = np.random.default_rng(1).standard_normal((2, 4, 4), np.float32)
    check(
        module([(2, 4, 4), (2, 1, 4)], from_input),
        ["greater", "where", "add", "nn.softmax", "isnan", "where"],
        inputs=[scores, masked],
    )
