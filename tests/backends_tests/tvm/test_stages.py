"""Elementwise operators, reductions, pooling and data movement of the TVM backend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax, tirx

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op
Reference = Callable[..., np.ndarray]


def _softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _layer_norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def _max_pool(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max(axis=(-2, -1))


def _avg_pool(x: np.ndarray) -> np.ndarray:
    return sliding_window_view(x, (3, 2), (2, 3))[:, :, ::1, ::2].mean(axis=(-2, -1))


def _root(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.abs(x))


def _unit(n: int, value: float) -> relax.Expr:
    return relax.const(np.full((n,), value, np.float32))


CASES: dict[str, tuple[tuple[int, ...], Callable[[relax.Var], relax.Expr], Reference]] = {
    "relu": ((1, 8, 7, 7), op.nn.relu, lambda x: np.maximum(x, 0)),
    "exp": ((3, 1001), op.exp, np.exp),
    "tanh": ((40, 513), op.tanh, np.tanh),
    "sigmoid": ((5, 3, 31), op.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "erf": ((5000,), op.erf, np.vectorize(math.erf)),
    "softplus": ((5, 1003), op.nn.softplus, lambda x: np.logaddexp(x, 0)),
    "square root": ((777,), lambda x: op.power(op.abs(x), relax.const(0.5)), _root),
    "cube": ((9, 111), lambda x: op.power(x, relax.const(3.0)), lambda x: x**3),
    "seventh": ((999,), lambda x: op.power(x, relax.const(7.0)), lambda x: x**7),
    "inverse square": ((512,), lambda x: op.power(x, relax.const(-2.0)), lambda x: x**-2),
    "softmax": ((2, 9, 128), lambda x: op.nn.softmax(x, -1), _softmax),
    "softmax odd": ((7, 131), lambda x: op.nn.softmax(x, -1), _softmax),
    "softmax one row": ((1, 1000), lambda x: op.nn.softmax(x, -1), _softmax),
    "softmax flat": ((96,), lambda x: op.nn.softmax(x, 0), _softmax),
    "softmax middle": ((4, 10, 33), lambda x: op.nn.softmax(x, 1), lambda x: _softmax(x, 1)),
    "layer_norm": (
        (2, 11, 96),
        lambda x: op.nn.layer_norm(x, _unit(96, 1), _unit(96, 0), axes=[-1]),
        _layer_norm,
    ),
    "layer_norm odd": (
        (9, 37),
        lambda x: op.nn.layer_norm(x, _unit(37, 1), _unit(37, 0), axes=[-1]),
        _layer_norm,
    ),
    "global mean": (
        (2, 33, 7, 7),
        lambda x: op.mean(x, [2, 3], keepdims=True),
        lambda x: x.mean(axis=(2, 3), keepdims=True),
    ),
    "mean of rows": ((5, 49, 65), lambda x: op.mean(x, [1]), lambda x: x.mean(axis=1)),
    "max": ((64, 200), lambda x: op.max(x, [-1]), lambda x: x.max(axis=-1)),
    "sum of all": ((20, 30), lambda x: op.sum(x), lambda x: np.asarray(x.sum())),
    "argmax": ((6, 100), lambda x: op.argmax(x, -1), lambda x: x.argmax(axis=-1)),
    "max_pool": (
        (1, 20, 57, 41),
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        _max_pool,
    ),
    "avg_pool": ((2, 4, 13, 22), lambda x: op.nn.avg_pool2d(x, (3, 2), (1, 2)), _avg_pool),
    "transpose": (
        (3, 17, 4, 33),
        lambda x: op.permute_dims(x, [0, 2, 3, 1]),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "slice": (
        (20, 300),
        lambda x: op.strided_slice(x, [1], [3], [290], [2]),
        lambda x: x[:, 3:290:2],
    ),
    "pad": (
        (2, 30, 31),
        lambda x: op.nn.pad(x, [0, 0, 2, 1, 0, 3]),
        lambda x: np.pad(x, ((0, 0), (2, 1), (0, 3))),
    ),
    "channel bias": (
        (1, 70, 7, 7),
        lambda x: op.add(x, relax.const(np.arange(70, dtype=np.float32).reshape(1, 70, 1, 1))),
        lambda x: x + np.arange(70).reshape(1, 70, 1, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str, context: BuildContext) -> None:
    shape, build, reference = CASES[name]
    data = np.random.default_rng().standard_normal(shape, dtype=np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(build(x)), [data])
    assert "none" not in tvm_cases.families(tvm_cases.kernels(mod, context))
    (got,) = tvm_cases.run(mod, [data], context)
    tvm_cases.assert_close(got, reference(data.astype(np.float64)))


EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0, 2e-38, 1e37], np.float32)

FUNCTIONS: dict[str, tuple[Callable[[relax.Expr], relax.Expr], Reference]] = {
    "log": (op.log, np.log),
    "sin": (op.sin, np.sin),
    "cos": (op.cos, np.cos),
    "cube": (lambda x: op.power(x, relax.const(3.0)), lambda x: x**3),
    "root": (lambda x: op.power(x, relax.const(0.5)), np.sqrt),
    "inverse": (lambda x: op.power(x, relax.const(-1.0)), lambda x: x**-1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_their_whole_range(name: str, context: BuildContext) -> None:
    """Within some units in the last place, and at the edges what IEEE 754 has."""
    build, reference = FUNCTIONS[name]
    rng = np.random.default_rng()
    some = (rng.uniform(-1, 1, 4000) * 10.0 ** rng.uniform(-6, 6, 4000)).astype(np.float32)
    data = np.concatenate([EDGES, some, np.arange(-40, 40, dtype=np.float32) * np.float32(np.pi)])
    mod = tvm_cases.partition(lambda emit, x: emit(build(x)), [data])
    (got,) = tvm_cases.run(mod, [data], context)
    with np.errstate(all="ignore"):
        wanted = reference(data.astype(np.float64)).astype(np.float32)
    edges = slice(len(EDGES))
    if name in ("sin", "cos"):
        usual = ~(np.abs(data) > 1e15)
        np.testing.assert_allclose(got[usual], wanted[usual], rtol=0, atol=2e-7)
        assert (np.abs(got[np.isfinite(data)]) <= 1.000001).all()
        assert np.isnan(got[edges][~np.isfinite(EDGES)]).all()
    else:
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        small = 2e-7 if name == "log" else 0.0
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=small)


@pytest.mark.parametrize("name", ["softmax", "softmax one row", "layer_norm"])
def test_rows_run_in_one_pass(name: str, context: BuildContext) -> None:
    shape, build, _ = CASES[name]
    mod = tvm_cases.partition(lambda emit, x: emit(build(x)), [np.zeros(shape, np.float32)])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["rowwise"]


def test_masked_softmax(context: BuildContext) -> None:
    """Minus infinity leaves exactly nothing behind."""
    data = np.random.default_rng().standard_normal((4, 64), dtype=np.float32)
    data[:, 40:] = -np.inf
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.softmax(x, -1)), [data])
    (got,) = tvm_cases.run(mod, [data], context)
    assert not got[:, 40:].any()
    tvm_cases.assert_close(got[:, :40], _softmax(data[:, :40].astype(np.float64)))


def test_elementwise_chain_is_one_parallel_vectorized_kernel(context: BuildContext) -> None:
    data = np.random.default_rng().standard_normal((1, 64, 28, 28), dtype=np.float32)

    def hard_swish(emit: Any, x: relax.Var) -> relax.Expr:
        scaled = emit(op.multiply(x, relax.const(1 / 6, "float32")))
        gate = emit(op.clip(emit(op.add(scaled, relax.const(0.5, "float32"))), 0, 1))
        return emit(op.multiply(x, gate))

    mod = tvm_cases.partition(hard_swish, [data])
    (kernel,) = tvm_cases.kernels(mod, context).values()
    assert {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED} <= tvm_cases.loop_kinds(kernel)
    (got,) = tvm_cases.run(mod, [data], context)
    tvm_cases.assert_close(got, data * np.clip(data / 6 + 0.5, 0, 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["sigmoid", "silu", "tanh", "sin", "exp", "log"])
def test_functions_of_functions_compile_in_time(name: str, context: BuildContext) -> None:
    """Six polynomials one in the other kept the compiler busy for hours."""
    function = getattr(op.nn if name == "silu" else op, name)
    data = np.random.default_rng().uniform(0.5, 2, (3, 40)).astype(np.float32)

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        for _ in range(6):
            x = emit(op.multiply(emit(op.abs(emit(function(x)))), relax.const(0.5)))
            x = emit(op.minimum(emit(op.add(x, relax.const(0.6))), relax.const(2.0)))
        return x

    (got,) = tvm_cases.run(tvm_cases.partition(body, [data]), [data], context)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    reference = {"sigmoid": sigmoid, "silu": lambda x: x * sigmoid(x)}.get(name) or getattr(
        np, name
    )
    wanted = data.astype(np.float64)
    for _ in range(6):
        wanted = np.minimum(np.abs(reference(wanted)) * 0.5 + 0.6, 2.0)
    tvm_cases.assert_close(got, wanted)


def test_small_kernels_stay_on_one_thread(context: BuildContext) -> None:
    """Starting threads costs more than a tiny tensor's work."""
    mod = tvm_cases.partition(
        lambda emit, x: emit(op.nn.relu(x)), [np.zeros((1, 1000), np.float32)]
    )
    (kernel,) = tvm_cases.kernels(mod, context).values()
    assert tirx.ForKind.PARALLEL not in tvm_cases.loop_kinds(kernel)


def test_take_and_concat(context: BuildContext) -> None:
    random = np.random.default_rng()
    table = random.standard_normal((50, 24), dtype=np.float32)
    index = random.integers(0, 50, (3, 7))
    extra = random.standard_normal((3, 7, 9), dtype=np.float32)

    def build(emit: Any, i: relax.Var, e: relax.Var) -> relax.Expr:
        rows = emit(op.take(relax.const(table), i, axis=0))
        return emit(op.concat([rows, e], axis=-1))

    mod = tvm_cases.partition(build, [index, extra])
    (got,) = tvm_cases.run(mod, [index, extra], context)
    assert np.array_equal(got, np.concatenate([table[index], extra], axis=-1))


def test_split_gives_several_outputs(context: BuildContext) -> None:
    data = np.random.default_rng().standard_normal((2, 12, 5), dtype=np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.split(x, [3, 8], axis=1)), [data])
    got = tvm_cases.run(mod, [data], context)
    wanted = np.split(data, [3, 8], axis=1)
    assert len(got) == 3
    assert all(np.array_equal(g, w) for g, w in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", ["relu", "leakyrelu"])
@pytest.mark.timeout(60)
def test_chains_of_activations_are_no_longer_to_compile_than_their_length(
    name: str, context: BuildContext
) -> None:
    """Each reads its operand twice: all of them in one expression would double with each."""
    x = np.random.default_rng().standard_normal((8, 16), np.float32)
    shifts = [np.float32(0.25 - 0.1 * i) for i in range(12)]

    def body(emit: Callable[..., relax.Var], data: relax.Var) -> relax.Var:
        for shift in shifts:
            data = emit(getattr(op.nn, name)(emit(op.add(data, relax.const(shift)))))
        return data

    (got,) = tvm_cases.run(tvm_cases.partition(body, [x]), [x], context)
    wanted = x
    for shift in shifts:
        wanted = wanted + shift
        wanted = np.where(wanted < 0, wanted * np.float32(name == "leakyrelu") * 0.01, wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
