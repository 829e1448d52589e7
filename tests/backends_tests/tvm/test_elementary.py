"""Elementary functions in vectors on a CPU: to a unit in the last place, and of ends as in C."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax, te, tirx

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op
_ENDS = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 2, -2, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.2e-38, -1.2e-38,
     1e-45, 1e-20, 1 - 6e-8, 1 + 1.2e-7, 1e-3, 16777216, 8388607.5, 3, -3, 127, -126, 129, -150],
    np.float32,
)  # fmt: skip


ONE: dict[str, tuple[Callable[..., relax.Expr], Callable[..., np.ndarray]]] = {
    "exp": (op.exp, np.exp),
    "tan": (op.tan, np.tan),
    "asin": (op.asin, np.arcsin),
    "acos": (op.acos, np.arccos),
    "atan": (op.atan, np.arctan),
    "sinh": (op.sinh, np.sinh),
    "cosh": (op.cosh, np.cosh),
    "asinh": (op.asinh, np.arcsinh),
    "acosh": (op.acosh, np.arccosh),
    "atanh": (op.atanh, np.arctanh),
    "rsqrt": (op.rsqrt, lambda x: 1 / np.sqrt(x)),
    "power of -1/2": (
        lambda x: op.power(x, relax.const(-0.5, "float32")),
        lambda x: 1 / np.sqrt(x),
    ),
}

_TWO_UNITS = ("exp", "rsqrt", "power of -1/2")


def _numbers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Of all sizes, of about one, and the ends; denormal ones are zero here, as in all threads."""
    sizes = np.exp(rng.uniform(-80, 80, count)) * rng.choice([-1, 1], count)
    near = rng.uniform(-2, 2, count)
    far = rng.uniform(-1e4, 1e4, count)
    return _flushed(np.concatenate([sizes, near, far, _ENDS]).astype(np.float32))


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def _assert_near(got: np.ndarray, wanted: np.ndarray, units: float = 1.0) -> None:
    """Within units in the last place, and of the same sign; denormal results may be zero."""
    rounded = wanted.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    smallest = np.finfo(np.float32).tiny
    room = np.spacing(np.maximum(np.abs(rounded[finite]), smallest)).astype(np.float64) * units
    room = np.where(np.abs(rounded[finite]) < 2 * smallest, smallest, room)
    error = np.abs(got[finite].astype(np.float64) - wanted[finite]) / room
    assert error.max() <= 1
    clear = finite & (np.abs(rounded) >= smallest)
    np.testing.assert_array_equal(np.signbit(got[clear]), np.signbit(rounded[clear]))


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str, context: BuildContext) -> None:
    ours, reference = ONE[name]
    x = _numbers(np.random.default_rng(), 5000)
    x = np.concatenate([x, np.linspace(-90, 90, 9001, dtype=np.float32)])
    if name == "tan":  # An angle of millions of turns has fewer digits, as its sine has.
        x = x[~np.isfinite(x) | (np.abs(x) < 1e6)]
    mod = tvm_cases.partition(lambda emit, x: emit(ours(x)), [x])
    (got,) = tvm_cases.run(mod, [x], context)
    with np.errstate(all="ignore"):
        _assert_near(got, reference(x.astype(np.float64)), 2.0 if name in _TWO_UNITS else 1.0)


def test_signs_of_zero(context: BuildContext) -> None:
    x = np.array([0.0, -0.0] * 16, np.float32)
    for name in ("tan", "sinh", "asin", "atan", "asinh", "atanh"):
        mod = tvm_cases.partition(lambda emit, x, name=name: emit(ONE[name][0](x)), [x])
        (got,) = tvm_cases.run(mod, [x], tvm_cases.for_example(context))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


def _pairs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    drawn = [_numbers(rng, 2000) for _ in range(2)]
    ends = np.meshgrid(_ENDS, _ENDS)
    x, y = (_flushed(np.concatenate([d, e.ravel()])) for d, e in zip(drawn, ends, strict=True))
    whole = rng.integers(-9, 9, 2000)
    x = np.concatenate([x, rng.uniform(-4, 4, 2000), np.abs(x)]).astype(np.float32)
    return x, np.concatenate([y, whole, y]).astype(np.float32)


def test_powers(context: BuildContext) -> None:
    x, y = _pairs(np.random.default_rng())
    mod = tvm_cases.partition(lambda emit, x, y: emit(op.power(x, y)), [x, y])
    (got,) = tvm_cases.run(mod, [x, y], context)
    with np.errstate(all="ignore"):
        _assert_near(got, np.power(x.astype(np.float64), y.astype(np.float64)))


@pytest.mark.parametrize("base", [2.0, 10.0, 0.5])
def test_powers_of_a_constant(base: float, context: BuildContext) -> None:
    x = _numbers(np.random.default_rng(), 5000)
    x = np.concatenate([x, np.linspace(-150, 150, 9001, dtype=np.float32)])
    mod = tvm_cases.partition(lambda emit, x: emit(op.power(relax.const(base, "float32"), x)), [x])
    (got,) = tvm_cases.run(mod, [x], context)
    with np.errstate(all="ignore"):
        wanted = np.power(base, x.astype(np.float64))
        _assert_near(got, wanted, 2.0 if base == 2.0 else 1.0)


def test_angles_of_points(context: BuildContext) -> None:
    y, x = _pairs(np.random.default_rng())

    def body(emit: tvm_cases.Body, y: relax.Expr, x: relax.Expr) -> relax.Expr:
        def angles(y: te.Tensor, x: te.Tensor) -> te.Tensor:
            return te.compute(y.shape, lambda i: tirx.atan2(y[i], x[i]))

        builder = relax.BlockBuilder.current()
        return emit(builder.call_te(angles, y, x))

    mod = tvm_cases.partition(body, [y, x])
    (got,) = tvm_cases.run(mod, [y, x], context)
    _assert_near(got, np.arctan2(y.astype(np.float64), x.astype(np.float64)))


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid"])
def test_functions_of_float64(name: str, context: BuildContext) -> None:
    rng = np.random.default_rng()
    ends = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 709.7, 710.0, -708.0, -800.0, 1e308, 1e-300]
    x = np.concatenate([np.exp(rng.uniform(-600, 600, 3000)), rng.uniform(-700, 700, 3084), ends])
    mod = tvm_cases.partition(lambda emit, x: emit(getattr(op, name)(x)), [x])
    (got,) = tvm_cases.run(mod, [x], context)
    with np.errstate(all="ignore"):
        wanted = {"exp": np.exp, "log": np.log, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}[name](x)
    np.testing.assert_allclose(got, wanted, rtol=4e-16, atol=1e-300)


def test_many_functions_of_functions_compile(context: BuildContext) -> None:
    """TVM's time doubled with each value that was named inside of another."""
    x = np.random.default_rng().uniform(-3, 3, (4, 64)).astype(np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        for _ in range(8):
            x = emit(op.sigmoid(op.floor_mod(x, relax.const(0.7, "float32"))))
        return x

    mod = tvm_cases.partition(body, [x])
    (got,) = tvm_cases.run(mod, [x], context)
    wanted = x
    for _ in range(8):
        wanted = 1 / (1 + np.exp(-np.mod(wanted, np.float32(0.7))))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
