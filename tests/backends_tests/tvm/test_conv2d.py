"""Convolutions of the TVM backend against a convolution written in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases


@dataclass(frozen=True)
class Case:
    data: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    family: str = "conv2d"


CASES = {
    "3x3": Case((1, 16, 14, 14), (32, 16, 3, 3), padding=(1, 1, 1, 1)),
    "1x1": Case((2, 24, 7, 7), (40, 24, 1, 1)),
    "1x1 strided": Case((1, 8, 15, 16), (16, 8, 1, 1), strides=(2, 2)),
    "stem": Case((1, 3, 33, 35), (24, 3, 7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
    "asymmetric": Case((1, 5, 9, 12), (7, 5, 3, 2), strides=(3, 1), padding=(0, 1, 2, 3)),
    "dilated": Case((1, 4, 19, 17), (9, 4, 3, 3), padding=(2, 1, 2, 1), dilation=(2, 1)),
    "dilated strided": Case((1, 4, 20, 17), (8, 4, 3, 3), strides=(3, 2), dilation=(2, 3)),
    "grouped": Case((1, 24, 10, 11), (32, 6, 3, 3), padding=(1, 1, 1, 1), groups=4),
    "odd groups": Case((1, 9, 10, 11), (15, 3, 3, 3), padding=(1, 0, 1, 0), groups=3),
    "one channel": Case((1, 1, 8, 8), (1, 1, 5, 3)),
    "exact tile": Case((1, 8, 8, 16), (16, 8, 3, 3), padding=(1, 1, 1, 1)),
    "tall": Case((1, 4, 120, 9), (8, 4, 3, 3), padding=(1, 1, 1, 1)),
    "depthwise": Case(
        (1, 17, 14, 15), (17, 1, 3, 3), padding=(1, 1, 1, 1), groups=17, family="depthwise"
    ),
    "depthwise strided": Case(
        (2, 8, 13, 33), (8, 1, 5, 3), (2, 2), (2, 0, 1, 1), groups=8, family="depthwise"
    ),
    "depthwise whole vectors": Case(
        (1, 7, 9, 32), (7, 1, 3, 3), padding=(1, 1, 1, 1), groups=7, family="depthwise"
    ),
    "depthwise half vectors": Case(
        (2, 6, 11, 28), (6, 1, 7, 7), padding=(3, 3, 3, 3), groups=6, family="depthwise"
    ),
    "depthwise short rows": Case(
        (2, 5, 7, 7), (5, 1, 3, 3), padding=(1, 1, 1, 1), groups=5, family="depthwise"
    ),
    "depthwise many taps": Case(
        (1, 6, 13, 11), (6, 1, 7, 5), (3, 2), (2, 1, 3, 4), (1, 3), groups=6, family="depthwise"
    ),
    "depthwise dilated strided": Case(
        (1, 4, 20, 17), (4, 1, 5, 5), (2, 3), (4, 4, 3, 2), (3, 2), groups=4, family="depthwise"
    ),
    "depthwise one result": Case((1, 9, 7, 7), (9, 1, 7, 7), groups=9, family="depthwise"),
    "short depth multiplier": Case(
        (1, 6, 7, 5), (18, 1, 5, 5), padding=(2, 2, 2, 2), groups=6, family="depthwise"
    ),
    "depth multiplier": Case((1, 6, 9, 9), (12, 1, 3, 3), groups=6, family="depthwise"),
    "large depthwise": Case((1, 5, 20, 20), (5, 1, 9, 9), groups=5),
}


def convolve(data: np.ndarray, weights: np.ndarray, case: Case) -> np.ndarray:
    """Direct convolution in float64, tap by tap."""
    top, left, bottom, right = case.padding
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    batch, channels, height, width = padded.shape
    out, _, kernel_h, kernel_w = weights.shape
    (step_h, step_w), (gap_h, gap_w), groups = case.strides, case.dilation, case.groups
    out_h = (height - (kernel_h - 1) * gap_h - 1) // step_h + 1
    out_w = (width - (kernel_w - 1) * gap_w - 1) // step_w + 1
    padded = padded.reshape(batch, groups, channels // groups, height, width)
    grouped = weights.reshape(groups, out // groups, channels // groups, kernel_h, kernel_w)
    result = np.zeros((batch, groups, out // groups, out_h, out_w))
    for i in range(kernel_h):
        for j in range(kernel_w):
            rows = slice(i * gap_h, i * gap_h + (out_h - 1) * step_h + 1, step_h)
            columns = slice(j * gap_w, j * gap_w + (out_w - 1) * step_w + 1, step_w)
            tap = padded[..., rows, columns]
            result += np.einsum("ngchw,goc->ngohw", tap, grouped[..., i, j])
    return result.reshape(batch, out, out_h, out_w)


def body(
    case: Case, weights: np.ndarray, after: Callable[..., relax.Expr] | None = None
) -> tvm_cases.Body:
    def build(emit: Any, data: relax.Var, *rest: relax.Var) -> relax.Expr:
        result = emit(
            relax.op.nn.conv2d(
                data,
                relax.const(weights),
                strides=case.strides,
                padding=case.padding,
                dilation=case.dilation,
                groups=case.groups,
            )
        )
        return result if after is None else after(emit, result, *rest)

    return build


def arrays(case: Case) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng()
    data = random.standard_normal(case.data, dtype=np.float32)
    return data, random.standard_normal(case.weights, dtype=np.float32)


@pytest.mark.parametrize("name", CASES)
def test_convolution(name: str, context: BuildContext) -> None:
    case = CASES[name]
    data, weights = arrays(case)
    mod = tvm_cases.partition(body(case, weights), [data])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == [case.family]
    (got,) = tvm_cases.run(mod, [data], context)
    tvm_cases.assert_close(got, convolve(data, weights, case))


@pytest.mark.parametrize("name", ["3x3", "stem", "grouped", "depthwise strided"])
def test_epilogue_is_fused(name: str, context: BuildContext) -> None:
    """Bias, residual add and clip run inside of the convolution's own kernel."""
    case = CASES[name]
    data, weights = arrays(case)
    reference = convolve(data, weights, case)
    random = np.random.default_rng()
    bias = random.standard_normal((1, weights.shape[0], 1, 1), dtype=np.float32)
    residual = random.standard_normal(reference.shape, dtype=np.float32)

    def after(emit: Any, result: relax.Expr, other: relax.Var) -> relax.Expr:
        result = emit(relax.op.add(result, relax.const(bias)))
        result = emit(relax.op.add(result, other))
        return emit(relax.op.clip(result, 0, 6))

    mod = tvm_cases.partition(body(case, weights, after), [data, residual])
    functions = tvm_cases.kernels(mod, context)
    assert tvm_cases.families(functions) == [case.family]
    (got,) = tvm_cases.run(mod, [data, residual], context)
    tvm_cases.assert_close(got, np.clip(reference + bias + residual, 0, 6))


def test_two_outputs(context: BuildContext) -> None:
    """A partition may hand out an intermediate result beside its last one."""
    case = CASES["3x3"]
    data, weights = arrays(case)

    def after(emit: Any, result: relax.Expr) -> relax.Expr:
        return emit(relax.Tuple([result, emit(relax.op.nn.relu(result))]))

    mod = tvm_cases.partition(body(case, weights, after), [data])
    plain, rectified = tvm_cases.run(mod, [data], context)
    reference = convolve(data, weights, case)
    tvm_cases.assert_close(plain, reference)
    tvm_cases.assert_close(rectified, np.maximum(reference, 0))


def test_loops_are_parallel_vectorized_and_unrolled(context: BuildContext) -> None:
    case = Case((1, 64, 28, 28), (64, 64, 3, 3), padding=(1, 1, 1, 1))
    data, weights = arrays(case)
    mod = tvm_cases.partition(body(case, weights), [data])
    (kernel,) = tvm_cases.kernels(mod, context).values()
    kinds = tvm_cases.loop_kinds(kernel)
    assert {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED} <= kinds


def test_variable_weights_are_packed_in_each_call(context: BuildContext) -> None:
    """All of them in one library: weights that another network makes, or the styles of an image."""
    chosen = [CASES[n] for n in ("3x3", "1x1", "grouped", "odd groups", "depthwise", "asymmetric")]
    inputs = [array for case in chosen for array in arrays(case)]

    def build(emit: Any, *args: relax.Var) -> relax.Expr:
        results = [
            emit(
                relax.op.nn.conv2d(
                    x,
                    emit(relax.op.negative(w)),
                    strides=case.strides,
                    padding=case.padding,
                    dilation=case.dilation,
                    groups=case.groups,
                )
            )
            for case, x, w in zip(chosen, args[::2], args[1::2], strict=True)
        ]
        return emit(relax.Tuple(results))

    mod = tvm_cases.partition(build, inputs)
    families = tvm_cases.families(tvm_cases.kernels(mod, context))
    assert [families.count(f) for f in ("conv2d", "depthwise")] == [len(chosen) - 1, 1]
    results = tvm_cases.run(mod, inputs, context)
    for got, case, x, w in zip(results, chosen, inputs[::2], inputs[1::2], strict=True):
        tvm_cases.assert_close(got, convolve(x, -w, case))


@pytest.mark.parametrize(
    "device",
    [
        {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"},
        {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"},
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"},
    ],
    ids=lambda device: device["mcpu"],
)
def test_other_machines_compile(device: dict[str, str], context: BuildContext) -> None:
    """Vector widths come from the target: narrower machines get other tiles, and code."""
    import tvm

    case = CASES["3x3"]
    data, weights = arrays(case)
    target = tvm_cases.tvm_target(device=device)
    mod = tvm_cases.partition(body(case, weights), [data])
    functions = tvm_cases.kernels(mod, context, target)
    assert tvm_cases.families(functions) == ["conv2d"]
    lowered = tvm.IRModule({k: f.with_attr("global_symbol", k) for k, f in functions.items()})
    assembly = tvm.compile(lowered, target=target.device)
    assert assembly is not None


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 256, 8, 8), (16, 256, 3, 3), padding=(1, 1, 1, 1)),
        Case((1, 2048, 5, 5), (12, 2048, 1, 1)),
        Case((1, 128, 9, 9), (32, 64, 5, 5), groups=2, strides=(2, 2)),
    ],
    ids=["3x3", "1x1", "grouped"],
)
def test_long_sums_are_as_exact_as_short_ones(case: Case, context: BuildContext) -> None:
    """Added up one by one, so many products are off by 7e-7 of root mean square and more."""
    data, weights = arrays(case)
    mod = tvm_cases.partition(body(case, weights), [data])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["conv2d"]
    (got,) = tvm_cases.run(mod, [data], context)
    exact = convolve(data, weights, case)
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < 5e-7
