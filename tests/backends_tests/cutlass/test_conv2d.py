"""CUTLASS's convolutions: what is taken and read, which kernels are offered, what they ask for."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from benchmarks.gpu.cases import CudaCase, cases_of
from benchmarks.gpu.cases.cutlass.conv import LAYOUTS, Convolution
from collage.backends.cutlass.codegen import Unit
from collage.backends.cutlass.families._base import alignment
from collage.backends.cutlass.families.conv2d.configurations import Conv2dConfiguration, candidates
from collage.backends.cutlass.families.conv2d.family import Conv2dFamily
from collage.backends.cutlass.families.conv2d.problem import Conv2dProblem
from collage.backends.cutlass.families.gemm.configurations import GemmConfiguration
from collage.backends.cutlass.families.gemm.render import ACTIVATION_CODES, RESIDUAL_CODES
from collage.backends.cutlass.library import TEMPLATES
from collage.backends.cutlass.options import CutlassOptions
from collage.testing.graphs import Emit, constant, graph
from tests.backends_tests.cutlass.reading import (
    Array,
    HostLibrary,
    read_case,
    read_module,
    read_whole,
    refusal,
)

SHARED_MEMORY_BYTES = 227 * 1024
"""What one thread block may use on an H100."""

CASES = cases_of("cutlass_conv")


def case_of(convolution: Convolution, dtype: str = "float16", **options: Any) -> CudaCase:
    name = f"cutlass.{convolution.pattern}"
    return CudaCase(name, "cutlass", name, convolution.module(dtype), options)


def convolve(sizes: tuple[int, ...], data: Array, weights: Array) -> Array:
    """The convolution that a kernel unit is told to compute by its run-time integers."""
    problem = Conv2dProblem.from_sizes(sizes, "float16")
    result = np.zeros((problem.n, problem.p, problem.q, problem.k))
    for (p, row), (q, column) in itertools.product(
        _taps(problem.p, problem.r, problem.strides[0], problem.dilation[0], problem.pads[0]),
        _taps(problem.q, problem.s, problem.strides[1], problem.dilation[1], problem.pads[1]),
    ):
        for (r, h), (s, w) in itertools.product(enumerate(row), enumerate(column)):
            if 0 <= h < problem.h and 0 <= w < problem.w:
                result[:, p, q] += data[:, h, w] @ weights[:, r, s].T
    return result


def _taps(
    results: int, extent: int, stride: int, dilation: int, pad: int
) -> list[tuple[int, list[int]]]:
    """For every place of the result, where the filter's rows or columns lie in the data."""
    return [(i, [i * stride - pad + t * dilation for t in range(extent)]) for i in range(results)]


@pytest.mark.parametrize("name", [n for n in CASES if "hopper" not in n])
def test_a_case_reads_as_the_problem_it_is(name: str) -> None:
    case = CASES[name]
    whole = read_whole(case)
    spec = whole.partition.spec
    given, expected = whole.operands()
    assert [array.shape for array in given] == [tensor.shape for tensor in spec.inputs]
    result = convolve(spec.sizes, given[0], given[1])
    words = spec.epilogue.replace("gelu_tanh", "tanhgelu").split("_")
    rest = given[2:]
    for word in [] if spec.epilogue == "none" else words:
        if word in ("bias", "add"):
            result = result + rest.pop(0)
        elif word == "multiply":
            result = result * rest.pop(0)
        else:
            result = ACTIVATIONS[word](result)
    assert not rest
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "tanhgelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def test_data_may_be_the_residual_too() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(16, 3, 3, 16, dtype="float16"), padding=1, **LAYOUTS))
        y = emit(op.add(y, constant(1, 1, 1, 16, dtype="float16")))
        return op.nn.relu(emit(op.add(y, x)))

    name = "cutlass.conv2d_bias_add_relu"
    partition = read_case(CudaCase(name, "cutlass", name, graph([(1, 5, 5, 16)], body, "float16")))
    assert partition.arguments[0] == partition.arguments[3] == 0
    assert len(set(partition.arguments)) == 3


def test_a_bias_of_one_axis_and_a_chain_of_silu_are_taken() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(24, 1, 1, 16, dtype="float16"), **LAYOUTS))
        y = emit(op.add(constant(24, dtype="float16"), y))
        return op.multiply(emit(op.sigmoid(y)), y)

    name = "cutlass.conv2d_bias_silu"
    partition = read_case(CudaCase(name, "cutlass", name, graph([(1, 5, 5, 16)], body, "float16")))
    assert partition.spec.inputs[2].shape == (24,)


def test_the_bias_stays_outside_where_it_is_used_elsewhere() -> None:
    """A value inside a chain that someone else needs ends the chain before it."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(16, 1, 1, 16, dtype="float16"), **LAYOUTS))
        y = emit(op.add(y, constant(1, 1, 1, 16, dtype="float16")))
        gate = emit(op.sigmoid(emit(op.nn.relu(y))))
        return op.multiply(y, gate)

    module = graph([(1, 5, 5, 16)], body, "float16")
    case = CudaCase("shared", "cutlass", "cutlass.conv2d_bias", module)
    (partition,) = read_module(case)
    assert partition.spec.epilogue == "bias"


@pytest.mark.parametrize(
    ("because", "pattern", "dtype", "options", "arguments"),
    [
        ("2 groups", "conv2d", "float16", {}, {"groups": 2}),
        ("data_layout is NCHW", "conv2d", "float16", {}, {"layout": "NCHW"}),
        ("float64", "conv2d", "float64", {}, {}),
        ("set use_3xtf32", "conv2d", "float32", {"use_3xtf32": False}, {}),
        ("not one value per channel", "conv2d_bias", "float16", {}, {"bias": (5, 6, 1)}),
        ("a bias of one element", "conv2d_bias", "float16", {}, {"bias": (1,), "channels": 1}),
        ("relu6 clips at 0 and 6", "conv2d_bias_relu6", "float16", {}, {"clip": (0, 1)}),
        ("broadcast", "conv2d_bias_add", "float16", {}, {"residual": (1, 1, 1, 8)}),
    ],
)
def test_refusals_say_why(
    because: str, pattern: str, dtype: str, options: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert because in refusal(pattern, _refused(dtype, **arguments), options)


def _refused(
    dtype: str,
    *,
    groups: int = 1,
    layout: str = "NHWC",
    data: int = 4,
    channels: int = 8,
    bias: tuple[int, ...] | None = None,
    clip: tuple[int, int] | None = None,
    residual: tuple[int, ...] | None = None,
) -> tvm.IRModule:
    def body(emit: Emit, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        if layout == "NCHW":
            return op.nn.conv2d(x, constant(channels, 5, 1, 1, dtype=dtype))
        weights = constant(channels, 1, 1, data // groups, dtype=dtype)
        y = op.nn.conv2d(x, weights, groups=groups, **LAYOUTS)
        if bias is not None or clip or residual:
            y = op.add(emit(y), constant(*(bias or (1, 1, 1, channels)), dtype=dtype))
        if clip:
            y = op.clip(emit(y), *clip)
        return op.add(emit(y), others[0]) if others else y

    shapes = [(1, 5, 6, data), *([residual] if residual else [])]
    return graph(shapes, body, dtype)


def test_other_numbers_than_hard_swishs_are_refused() -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, constant(8, 1, 1, 8, dtype="float16"), **LAYOUTS))
        y = emit(op.add(y, constant(8, dtype="float16")))
        fifth = relax.const(np.array(0.2, "float16"), "float16")
        half = relax.const(np.array(0.5, "float16"), "float16")
        gate = emit(op.clip(emit(op.add(emit(op.multiply(y, fifth)), half)), 0, 1))
        return op.multiply(y, gate)

    reason = refusal("conv2d_bias_hardswish", graph([(1, 4, 4, 8)], body, "float16"))
    assert "scale is 0.199951, not 0.166667" in reason and "hard-swish" in reason


PROBLEMS = st.builds(
    lambda n, h, w, c, k, r, s, dtype: Conv2dProblem(
        *(n, h, w, c, k, r, s, h, w), (r // 2, s // 2) * 2, (1, 1), (1, 1), dtype
    ),
    *(st.integers(1, 16), st.integers(1, 60), st.integers(1, 60), st.integers(1, 300)),
    *(st.integers(1, 600), st.integers(1, 7), st.integers(1, 7)),
    st.sampled_from(["float16", "bfloat16", "float32"]),
)


@settings(max_examples=150, deadline=None)
@given(PROBLEMS, st.sampled_from(["sm_80", "sm_90a"]))
def test_every_offered_configuration_fits(problem: Conv2dProblem, arch: str) -> None:
    offered = candidates(problem, CutlassOptions(), arch)
    assert 1 <= len(offered) <= 8
    assert len(set(offered)) == len(offered)
    for made in offered:
        check_configuration(problem, made, arch)


def check_configuration(problem: Conv2dProblem, made: Conv2dConfiguration, arch: str) -> None:
    if made.kind == "sm90":
        assert arch == "sm_90a" and problem.bits == 16
        assert problem.c % 8 == 0 and problem.k % 8 == 0
        assert made.split_k == 1
        return
    assert problem.c % made.access_c == 0 and problem.k % made.access_k == 0
    assert made.access_c * problem.bits <= 128 and made.access_k * problem.bits <= 128
    # Asynchronous copies, which more than two stages need, move at least four bytes.
    assert made.stages == 2 or made.access_c * problem.bits >= 32
    assert made.stages * (made.tile_m + made.tile_n) * made.tile_k * problem.bits / 8 <= (
        SHARED_MEMORY_BYTES
    )
    assert (made.split_k > 1) == (made.kind == "split_k")
    assert made.split_k == 1 or made.iterator in ("optimized", "analytic")
    assert (made.split_k - 1) * made.tile_k < problem.c, "a slice would be empty"
    if made.iterator == "fixed":
        assert problem.c == made.access_c
    if made.iterator == "optimized":
        assert max(problem.r, problem.s) <= 32


def test_options_choose_generation_slices_and_accesses() -> None:
    problem = Conv2dProblem(1, 7, 7, 512, 512, 3, 3, 7, 7, (1,) * 4, (1, 1), (1, 1), "float16")

    def offered(**options: Any) -> list[Conv2dConfiguration]:
        return candidates(problem, CutlassOptions(**options), "sm_90a")

    assert {c.kind for c in offered()} == {"sm80", "sm90", "split_k"}
    assert {c.kind for c in offered(sm=80)} == {"sm80", "split_k"}
    assert any(c.split_k > 1 for c in offered()), "a batch of one small image needs slices"
    assert {c.split_k for c in offered(sm=80, split_k_slices=1)} == {1}
    assert {3, 5} <= {c.split_k for c in offered(sm=80, split_k_slices="3,5,64")}
    wide = dataclasses.replace(problem, n=64)
    assert candidates(wide, CutlassOptions(), "sm_90a")[0].split_k == 1
    assert {c.access_c for c in offered(sm=80)} == {8}


@pytest.mark.parametrize(("channels", "bits", "wanted"), [(64, 16, 8), (36, 16, 4), (3, 32, 1)])
def test_alignment_is_the_widest_access(channels: int, bits: int, wanted: int) -> None:
    assert alignment(channels, bits) == wanted


def test_units_do_not_depend_on_extents_epilogues_nor_slices() -> None:
    family = Conv2dFamily()
    same = {"padding": 1}
    small, large, other = (
        read_case(case_of(convolution)).spec
        for convolution in (
            Convolution((1, 8, 8, 64), (64, 3, 3), "bias", same),
            Convolution((2, 30, 20, 128), (192, 3, 3), "bias_relu6", same),
            Convolution((2, 30, 20, 128), (192, 3, 3), "bias_silu_add", same),
        )
    )
    made = Conv2dConfiguration("sm80", 128, 64, 32, 2, 2, 4, "optimized", 8, 8, 1)
    assert family.render(small, made) == family.render(large, made)
    # Costly activations, and a residual to load, have kernels of their own.
    assert family.render(small, made) != family.render(other, made)
    sliced, more = (dataclasses.replace(made, kind="split_k", split_k=n) for n in (2, 4))
    assert family.render(small, sliced) == family.render(other, more)
    assert family.launch_sizes(small, sliced)[-5:] == (1, 0, 0, 0, 2)
    assert family.render(small, made) != family.render(small, dataclasses.replace(made, stages=3))
    assert "{{" not in family.render(small, made).text


def test_numbers_of_the_epilogue_are_those_of_the_kernels_header() -> None:
    header = (TEMPLATES / "collage_activation.h").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"  k(\w+) = (\d+),", header))
    spelled = {name.replace("_", ""): code for name, code in ACTIVATION_CODES.items() if name}
    assert spelled == {
        name.lower(): int(number) for name, number in numbers.items() if name.lower() in spelled
    }
    residuals = re.search(r"kAddResidual = (\d+), kMultiplyResidual = (\d+)", header)
    assert residuals is not None
    assert tuple(map(int, residuals.groups())) == (
        RESIDUAL_CODES["add"],
        RESIDUAL_CODES["multiply"],
    )
    family = Conv2dFamily()
    spec = read_case(case_of(Convolution((1, 8, 8, 16), (16, 3, 3), "bias_add_relu"))).spec
    made = family.configurations(spec, CutlassOptions(), "sm_80")[0]
    assert family.launch_sizes(spec, made)[17:21] == (1, 0, 1, 1)


@pytest.mark.parametrize("epilogue", ["", "bias_relu6", "bias_add_relu"])
def test_single_pixels_run_on_the_kernels_of_matrix_products(epilogue: str) -> None:
    family, options = Conv2dFamily(), CutlassOptions()
    spec = read_case(case_of(Convolution((2, 7, 9, 64), (48, 1, 1), epilogue))).spec
    offered = family.configurations(spec, options, "sm_90a")
    assert all(isinstance(made, GemmConfiguration) for made in offered)
    made = offered[0]
    m, n, k, batch, lda, ldb, *strides = family.launch_sizes(spec, made)[:8]
    assert (m, n, k, batch, lda, ldb, *strides) == (2 * 7 * 9, 48, 64, 1, 64, 64, 0, 0)
    # The unit is the one that a product with transposed weights has.
    assert "kDeepA = true, kDeepB = true" in family.render(spec, made).text
    strided = Convolution((2, 7, 9, 64), (48, 1, 1), epilogue, {"strides": 2})
    other = read_case(case_of(strided)).spec
    assert not any(
        isinstance(c, GemmConfiguration) for c in family.configurations(other, options, "sm_90a")
    )


@pytest.mark.cuda
def test_a_sliced_kernel_asks_for_its_partial_sums(tmp_path: Path) -> None:
    """A compiled unit's host code, called on a machine that need not have a GPU."""
    family, case = Conv2dFamily(), CASES["conv2d_bias_relu-float16-sliced"]
    spec = read_case(case).spec
    options = CutlassOptions(**case.options)
    chosen = next(c for c in family.configurations(spec, options, "sm_90a") if c.kind == "split_k")
    assert isinstance(chosen, Conv2dConfiguration)
    assert chosen.split_k == int(case.options["split_k_slices"])
    library = HostLibrary(Unit.of(family.render(spec, chosen)), tmp_path)
    sizes = family.launch_sizes(spec, chosen)
    assert library.workspace(sizes) == 4 * chosen.split_k * spec.output.size
