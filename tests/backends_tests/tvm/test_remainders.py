"""Remainders of floats, which are exact, and running sums, which are as exact as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases

op = relax.op
_ENDS = np.array(
    [0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, 3e38, 1e-5, 16777216, 3, -3, 0.7], np.float32
)


def _pairs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Quotients of up to 2^130; those that PyTorch has no remainder of are larger."""
    sizes = [np.exp(rng.uniform(-45, 45, 4000)) * rng.choice([-1, 1], 4000) for _ in range(2)]
    near = rng.uniform(-1e4, 1e4, 4000), rng.uniform(-2, 2, 4000)
    ends = np.meshgrid(_ENDS, _ENDS)
    parts = [np.concatenate([s, n, e.ravel()]) for s, n, e in zip(sizes, near, ends, strict=True)]
    return parts[0].astype(np.float32), parts[1].astype(np.float32)


@pytest.mark.parametrize(
    ("ours", "reference"), [(op.mod, np.fmod), (op.floor_mod, np.mod)], ids=["mod", "floor_mod"]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_remainders_are_exact(
    ours: Callable[..., relax.Expr],
    reference: Callable[..., np.ndarray],
    threads: int,
    context: BuildContext,
) -> None:
    x, y = _pairs(np.random.default_rng())
    mod = cases.partition(lambda emit, x, y: emit(ours(x, y)), [x, y])
    (got,) = cases.run(mod, [x, y], cases.for_example(context, threads))
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
        # NumPy's remainder with the divisor's sign adds where an infinite one leaves all.
        some = np.isfinite(y) | np.isnan(y) if reference is np.mod else np.full(y.shape, True)
    tiny = np.finfo(np.float32).tiny
    clear = some & ~(np.abs(wanted) < tiny)
    np.testing.assert_array_equal(got[clear], wanted[clear])


def test_remainders_by_a_constant(context: BuildContext) -> None:
    x = np.random.default_rng().uniform(-1e7, 1e7, (3, 1000)).astype(np.float32)
    by = np.float32(2 * np.pi)
    mod = cases.partition(lambda emit, x: emit(op.floor_mod(x, relax.const(by))), [x])
    (got,) = cases.run(mod, [x], context)
    np.testing.assert_array_equal(got, np.mod(x.astype(np.float64), by).astype(np.float32))


@pytest.mark.parametrize(
    ("axis", "exclusive"), [(0, False), (1, True), (1, False), (2, False), (None, True)]
)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_are_rounded_once(
    name: str, exclusive: bool, axis: int | None, context: BuildContext
) -> None:
    x = np.random.default_rng().uniform(0.99, 1.01, (6, 300, 10)).astype(np.float32)
    scan = getattr(op, name)
    mod = cases.partition(lambda emit, x: emit(scan(x, axis, exclusive=exclusive)), [x])
    (got,) = cases.run(mod, [x], context)
    exact = getattr(np, name)(x.astype(np.float64), axis=axis)
    if exclusive:
        shifted = np.roll(exact, 1, axis if axis is not None else 0)
        first = [slice(None)] * exact.ndim
        first[axis or 0] = 0
        shifted[tuple(first)] = 0.0 if name == "cumsum" else 1.0
        exact = shifted
    np.testing.assert_allclose(got, exact, rtol=6.1e-8)
