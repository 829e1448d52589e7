"""Elementwise functions alone and behind products: to their last digits, of every length."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.devices.cpu_flags import cpu_flags_here
from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.onednn.regions import Regions

LENGTHS = (1, 15, 16, 17, 31, 32, 33, 100, 4100)

Operator = Callable[[relax.Expr], relax.Expr]


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -x))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _mish(x: relax.Expr) -> relax.Expr:
    return op.multiply(x, op.tanh(op.nn.softplus(x)))


def _elu(x: relax.Expr) -> relax.Expr:
    below = op.nn.relu(op.subtract(relax.const(np.float32(1)), op.exp(x)))
    return op.add(op.multiply(relax.const(np.float32(-1.5)), below), op.nn.relu(x))


def _gelu_quick(x: relax.Expr) -> relax.Expr:
    return op.multiply(x, op.sigmoid(op.multiply(x, relax.const(np.float32(1.702)))))


FUNCTIONS: dict[str, tuple[Operator, Callable[[np.ndarray], np.ndarray]]] = {
    "sigmoid": (op.sigmoid, _logistic),
    "silu": (op.nn.silu, lambda x: x * _logistic(x)),
    "gelu": (op.nn.gelu, lambda x: x / 2 * (1 + _erf(x / math.sqrt(2)))),
    "gelu_tanh": (
        op.nn.gelu_tanh,
        lambda x: x * _logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    ),
    "exp": (op.exp, np.exp),
    "tanh": (op.tanh, np.tanh),
    "softplus": (op.nn.softplus, lambda x: np.logaddexp(0, x)),
    "softplus_of_2": (
        lambda x: op.nn.softplus(x, beta=2.0),
        lambda x: np.logaddexp(0, 2 * x) / 2,
    ),
    "mish": (_mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "elu": (_elu, lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0)))),
    "gelu_quick": (_gelu_quick, lambda x: x * _logistic(np.float64(np.float32(1.702)) * x)),
}

Body = Callable[[Emit, relax.Expr, Operator], relax.Expr]


def _conv(channels: int) -> Body:
    def body(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(channels, 6, 3, 3, scale=0.2), padding=1))
        return emit(function(emit(op.add(y, constant(1, channels, 1, 1)))))

    return body


def _depthwise(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
    y = emit(op.nn.conv2d(x, constant(6, 1, 3, 3, scale=0.4), padding=1, groups=6))
    return emit(function(y))


def _added_behind(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
    """A residual that is added behind the function, twice, to a product that reads it."""
    first = _conv(6)(emit, x, function)
    y = emit(op.add(first, x))
    return emit(op.nn.relu(emit(op.add(_conv(6)(emit, y, function), y))))


def _added_before(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
    y = emit(op.nn.conv2d(x, constant(6, 6, 1, 1, scale=0.4)))
    return emit(function(emit(op.add(y, x))))


def _twice(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
    y = emit(function(_conv(20)(emit, x, function)))
    return emit(op.nn.conv2d(y, constant(8, 20, 1, 1, scale=0.2)))


def _matmul(emit: Emit, x: relax.Expr, function: Operator) -> relax.Expr:
    y = emit(op.matmul(x, constant(9, 33, scale=0.3)))
    return emit(function(emit(op.add(y, constant(33)))))


BODIES: dict[str, Body] = {
    "conv_of_16": _conv(16),
    "conv_of_20": _conv(20),
    "depthwise": _depthwise,
    "added_behind": _added_behind,
    "added_before": _added_before,
    "twice": _twice,
    "matmul": _matmul,
}
PICTURE = (2, 6, 11, 9)

CHAINS = [
    (name, body)
    for name in FUNCTIONS
    for body in BODIES
    if name != "exp" or body not in ("added_behind", "twice")  # powers of powers lose all digits
]


def _alone(function: Operator) -> Callable[[Emit, relax.Expr], relax.Expr]:
    return lambda _, x: function(x)


def _behind(body: Body, function: Operator) -> Callable[[Emit, relax.Expr], relax.Expr]:
    return lambda emit, x: body(emit, x, function)


@pytest.fixture(scope="module", params=["auto", "blocked"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Regions:
    graphs = {
        f"{name}_of_{count}": graph([(count,)], _alone(function))
        for name, (function, _) in FUNCTIONS.items()
        for count in LENGTHS
    }
    for name, body in CHAINS:
        chain = _behind(BODIES[body], FUNCTIONS[name][0])
        graphs[f"{name}_{body}"] = graph([PICTURE], chain)
    folder = tmp_path_factory.mktemp("activations")
    return Regions(graphs, folder, {"layout": request.param})


def _drawn(shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng().standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_to_their_last_digits(
    compiled: Regions, name: str, count: int, scale: float
) -> None:
    x = _drawn((count,), scale)
    (found,) = compiled.run(f"{name}_of_{count}", [x])
    wanted = FUNCTIONS[name][1](x.astype(np.float64))
    # Of GELUs the digits of a factor between 0 and 1 count, the library's too.
    size = np.abs(x) if name.startswith("gelu") else np.abs(wanted)
    assert (np.abs(found - wanted) <= 4e-7 * size + 2e-37).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_are_far_out(compiled: Regions, name: str) -> None:
    x = np.repeat(np.array([-1e30, -1e4, -200, -90, 0, 60, 80], np.float32), 5)[:33]
    (found,) = compiled.run(f"{name}_of_33", [x])
    wanted = FUNCTIONS[name][1](x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, 2e-6, 1e-36)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_number_stays_so_and_alone(compiled: Regions, name: str) -> None:
    x = _drawn((33,))
    x[[0, 20, 32]] = np.nan
    x[[3, 21]] = np.inf
    (found,) = compiled.run(f"{name}_of_33", [x])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    most = 1 if name in ("sigmoid", "tanh") else np.inf
    np.testing.assert_array_equal(found[[3, 21]], most)


@pytest.mark.parametrize("name, body", CHAINS)
def test_behind_products(compiled: Regions, name: str, body: str) -> None:
    x = _drawn(PICTURE)
    (found,) = compiled.run(f"{name}_{body}", [x])
    (wanted,) = evaluate(compiled.graphs[f"{name}_{body}"], [x])
    assert largest_error(found, wanted) < 2e-6


@pytest.mark.skipif("avx2" not in cpu_flags_here(), reason="needs vectors of ours")
@pytest.mark.parametrize("count", LENGTHS)
def test_logarithms_to_their_last_digits(count: int, tmp_path: Path) -> None:
    """Near 1, where sums of densities' logarithms have most of their terms, too."""
    function = {"log": graph([(count,)], _alone(op.log))}
    compiled = Regions(function, tmp_path, {})
    rng = np.random.default_rng()
    for low, high in ((0.8, 1.25), (0.0, 1e3), (1e-37, 1e-30), (1e30, 3e38)):
        x = rng.uniform(low, high, count).astype(np.float32)
        (found,) = compiled.run("log", [x])
        wanted = np.log(x.astype(np.float64))
        assert (np.abs(found - wanted) <= 3e-7 * np.abs(wanted) + 1e-12).all()
    x = np.resize(np.array([np.nan, 0.0, np.inf, -1.0, 1.0], np.float32), count)
    (found,) = compiled.run("log", [x])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, np.log(x))
