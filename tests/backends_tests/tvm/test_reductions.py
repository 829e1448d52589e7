"""Reductions over any axes, few results and many, and norms over groups of channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

KINDS: dict[str, tuple[Callable[..., relax.Expr], Callable[..., np.ndarray]]] = {
    "sum": (op.sum, np.sum),
    "mean": (op.mean, np.mean),
    "max": (op.max, np.max),
    "min": (op.min, np.min),
    "variance": (op.variance, np.var),
}

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((65536,), (0,), "reduction"),
    ((8, 9, 128, 32), (1, 2, 3), "reduction"),
    ((4, 7, 32, 32), (0, 2, 3), "reduction"),
    ((3, 5, 28, 28), (2, 3), "reduction"),
    ((300, 96), (1,), "reduction"),
    ((300, 2048), (1,), "reduction"),
    ((6, 5003), (1,), "reduction"),
    ((5, 3001), (0, 1), "reduction"),
    ((33, 17), (1,), "reduction"),
    ((12, 197, 197), (2,), "reduction"),
    ((4, 49, 7), (1, 2), "reduction"),
    ((4, 43, 1), (1, 2), "generic"),
    ((512, 1024), (0,), "generic"),
    ((16, 40, 130), (1,), "generic"),
    ((64, 3, 5), (0,), "generic"),
]
"""Shape, axes, and which family takes a plain sum or extreme of them."""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_reductions(kind: str, threads: int, context: BuildContext) -> None:
    """All shapes in one library, which compiles in a fraction of the time."""
    ours, reference = KINDS[kind]
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(shape, dtype=np.float32) + 0.5 for shape, _, _ in SHAPES]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        pairs = zip(args, SHAPES, strict=True)
        return emit(relax.Tuple([emit(ours(x, list(axes))) for x, (_, axes, _) in pairs]))

    mod = tvm_cases.partition(body, inputs)
    context = dataclasses.replace(context, num_threads=threads)
    if kind in ("sum", "max", "min"):
        families = tvm_cases.families(tvm_cases.kernels(mod, context))
        assert families == [family for _, _, family in SHAPES]
    results = tvm_cases.run(mod, inputs, context)
    for got, x, (_, axes, _) in zip(results, inputs, SHAPES, strict=True):
        tvm_cases.assert_close(got, reference(x.astype(np.float64), axis=axes))


def test_argmax_takes_the_first_of_equals(context: BuildContext) -> None:
    data = np.random.default_rng().integers(0, 9, (40, 128)).astype(np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.argmax(x, 1)), [data])
    (got,) = tvm_cases.run(mod, [data], context)
    np.testing.assert_array_equal(got, data.argmax(axis=1))


def test_a_sum_with_something_before_and_behind(context: BuildContext) -> None:
    data = np.random.default_rng().standard_normal((24, 640), dtype=np.float32)
    mod = tvm_cases.partition(
        lambda emit, x: emit(op.sqrt(emit(op.sum(emit(op.multiply(x, x)), [1])))), [data]
    )
    (got,) = tvm_cases.run(mod, [data], context)
    tvm_cases.assert_close(got, np.sqrt((data.astype(np.float64) ** 2).sum(axis=1)))


@pytest.mark.parametrize(
    ("groups", "shape"),
    [(1, (2, 6, 40)), (4, (1, 12, 8, 8)), (3, (2, 9, 5, 7)), (8, (1, 16, 4, 6, 5)), (5, (3, 5, 9))],
)
@pytest.mark.parametrize("mean", [0.5, 50.0])
@pytest.mark.parametrize("instance", [False, True], ids=["groups", "instances"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_group_norm(
    groups: int,
    shape: tuple[int, ...],
    instance: bool,
    mean: float,
    last: bool,
    context: BuildContext,
) -> None:
    """In one pass of plain sums the variance was off by 1e-4 where the mean is fifty deviations."""
    rng = np.random.default_rng()
    data = rng.standard_normal(shape, dtype=np.float32) + np.float32(mean)
    groups = shape[1] if instance else groups
    gamma, beta = rng.standard_normal((2, shape[1]), dtype=np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        channel = len(shape) - 1 if last else 1
        axes = [axis for axis in range(1, len(shape)) if axis != channel]
        scale, shift = relax.const(gamma), relax.const(beta)
        if instance:
            return emit(op.nn.instance_norm(x, scale, shift, channel, axes, epsilon=1e-5))
        return emit(op.nn.group_norm(x, scale, shift, groups, channel, axes, epsilon=1e-5))

    given = np.ascontiguousarray(np.moveaxis(data, 1, -1)) if last else data
    mod = tvm_cases.partition(body, [given])
    (got,) = tvm_cases.run(mod, [given], context)
    got = np.moveaxis(got, -1, 1) if last else got
    rows = data.astype(np.float64).reshape(shape[0], groups, -1)
    centred = rows - rows.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    per_channel = (1, -1, *(1,) * (len(shape) - 2))
    wanted = normal.reshape(shape) * gamma.reshape(per_channel) + beta.reshape(per_channel)
    error = np.sqrt(np.mean((got - wanted) ** 2) / np.mean(wanted**2))
    assert error < 3e-7 * (1 + mean)


def test_extremes_of_what_is_all_infinite(context: BuildContext) -> None:
    """As masks make them; TVM's own begin at the largest finite number."""
    low = np.full((3, 40), -np.inf, np.float32)
    low[1, 7] = 2.0

    def body(emit: tvm_cases.Body, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return emit(relax.Tuple([emit(op.max(x, [1])), emit(op.min(y, [1], keepdims=True))]))

    mod = tvm_cases.partition(body, [low, -low])
    most, least = tvm_cases.run(mod, [low, -low], context)
    np.testing.assert_array_equal(most, low.max(1))
    np.testing.assert_array_equal(least, -low.max(1, keepdims=True))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "uint8", "int8", "int32"])
def test_places_of_extremes(kind: str, context: BuildContext) -> None:
    """The first of what is alike, also where all is the least there is: TVM's own says -1."""
    rng = np.random.default_rng()
    is_float = "float" in kind
    least = -np.inf if is_float else np.iinfo(kind).min
    most = np.inf if is_float else np.iinfo(kind).max
    x = rng.integers(0, 4, (6, 5, 7)).astype(getattr(ml_dtypes, kind, kind))
    x[1], x[2], x[3, :, 2] = least, most, least

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        return emit(
            relax.Tuple(
                [
                    emit(op.argmax(x, 1)),
                    emit(op.argmin(x, -1, keepdims=True)),
                    emit(op.argmax(x)),
                    emit(op.argmin(x, keepdims=True)),
                    emit(op.argmin(x, 0)),
                ]
            )
        )

    found = tvm_cases.run(tvm_cases.partition(body, [x]), [x], context)
    wanted = [
        x.argmax(1),
        np.expand_dims(x.argmin(-1), -1),
        x.argmax(),
        x.argmin(keepdims=True),
        x.argmin(0),
    ]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("scale", ["product", "quotient"])
def test_product_scaled_by_a_computed_scalar(scale: str, context: BuildContext) -> None:
    """What quantized networks are full of: a stage without any loop beside the reduction."""
    rng = np.random.default_rng()
    x = rng.integers(-9, 9, (1, 24, 24, 512)).astype(np.int32)
    s = np.asarray(rng.uniform(1, 2), np.float32)
    w = rng.integers(-9, 9, (512, 1)).astype(np.int32)

    def body(emit: tvm_cases.Body, x: relax.Expr, w: relax.Expr, s: relax.Expr) -> relax.Expr:
        total = emit(op.astype(emit(op.matmul(x, w, out_dtype="int32")), "float32"))
        scaled = {"product": op.multiply, "quotient": op.divide}[scale](s, relax.const(0.25))
        return emit(op.multiply(total, emit(scaled)))

    mod = tvm_cases.partition(body, [x, w, s])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["rowwise"]
    (got,) = tvm_cases.run(mod, [x, w, s], context)
    factor = s * 0.25 if scale == "product" else s / 0.25
    wanted = (x.astype(np.int64) @ w).astype(np.float32) * factor
    tvm_cases.assert_close(got, wanted)


@pytest.mark.parametrize("shape, groups", [((1, 64, 999), 1), ((2, 12, 7, 19), 1), ((3, 8, 37), 1)])
def test_rows_with_a_remainder(shape: tuple[int, ...], groups: int, context: BuildContext) -> None:
    """Neighbours count as one axis, and no vector is cut by a predicate."""
    rng = np.random.default_rng()
    x, scale, shift = (
        rng.standard_normal(s, dtype=np.float32) for s in (shape, shape[1:2], shape[1:2])
    )

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        axes = list(range(2, len(shape)))
        return emit(op.nn.group_norm(*args, groups, 1, axes, epsilon=1e-5))

    mod = tvm_cases.partition(body, [x, scale, shift])
    scheduled = tvm_cases.kernels(mod, context)
    assert tvm_cases.families(scheduled) == ["rowwise"]
    assert not any("T.where" in kernel.script() for kernel in scheduled.values())
    (got,) = tvm_cases.run(mod, [x, scale, shift], context)
    rows = x.reshape(shape[0], groups, -1).astype(np.float64)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    wide = (1, -1, *(1 for _ in shape[2:]))
    wanted = normal.reshape(shape) * scale.reshape(wide) + shift.reshape(wide)
    tvm_cases.assert_close(got, wanted.astype(np.float32))
