"""What is lost between a scheduled kernel and the CUDA made of it, seen in the very source."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram, cuda_source
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

pytestmark = pytest.mark.cuda

Array = np.ndarray[Any, Any]
Body = Callable[..., Any]


def _run(mod: tvm.IRModule, context: BuildContext, folder: Path, *inputs: Array) -> list[Array]:
    return HostProgram(lower(mod, context), cuda_target(), folder)(*inputs)


def _random(*shape: int) -> Array:
    return np.random.default_rng().standard_normal(shape, np.float32)


@pytest.mark.parametrize("shape", [(3, 2, 2), (1, 12), (61,)])
def test_a_single_result_is_stored_by_a_thread_that_has_summed(
    shape: tuple[int, ...], context: BuildContext, tmp_path: Path
) -> None:
    mod = graph([shape], lambda emit, x: op.log(emit(op.sum(emit(op.exp(x))))))
    x = _random(*shape)
    (found,) = _run(mod, context, tmp_path, x)
    np.testing.assert_allclose(found, np.log(np.exp(x).sum()), rtol=1e-5)


@pytest.mark.parametrize("function", [op.argmax, op.argmin])
@pytest.mark.parametrize("axis", [0, 1, 2, None])
def test_the_place_of_an_extreme_comes_out_of_registers(
    function: Body, axis: int | None, context: BuildContext, tmp_path: Path
) -> None:
    x = _random(5, 7, 9)
    mod = graph([x.shape], lambda emit, x: function(x, axis))
    (found,) = _run(mod, context, tmp_path, x)
    np.testing.assert_array_equal(found, getattr(np, function.__name__)(x, axis))


def test_eight_places_beside_eight_halves_are_written(
    context: BuildContext, tmp_path: Path
) -> None:
    """Of so many numbers of 64 bits CUDA has no vector; TVM wrote none, and nvcc refused it."""
    x = _random(512, 64).astype("float16")
    mod = graph([x.shape], lambda emit, x: op.argmax(x, 0), "float16")
    lowered = lower(mod, context)
    assert "*(*)" not in cuda_source(lowered, cuda_target())
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    np.testing.assert_array_equal(found, x.argmax(0))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5000,), (0,)), ((2, 3, 20, 20), (0, 2, 3)), ((9, 700), (1,)), ((300, 40), (0,))],
)
def test_extremes_from_infinity_on(
    kind: str, shape: tuple[int, ...], axes: tuple[int, ...], context: BuildContext, tmp_path: Path
) -> None:
    """By threads together: TVM took apart those alone that begin at a finite number."""
    mod = graph([shape], lambda emit, x: getattr(op, kind)(x, list(axes)))
    lowered = lower(mod, context)
    assert {str(k.attrs["collage.schedule"]) for k in kernels(lowered).values()} == {"reduction"}
    x = _random(*shape)
    x[x * (1 if kind == "max" else -1) < -1] = -np.inf if kind == "max" else np.inf
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    np.testing.assert_array_equal(found, getattr(x, kind)(axes))


def test_masks_are_read_boolean_by_boolean(context: BuildContext, tmp_path: Path) -> None:
    mask = tvm.relax.const(np.tril(np.ones((4, 4), bool))[None])
    low = tvm.relax.const(np.float32(-9.0))
    mod = graph(
        [(2, 4, 8), (2, 8, 4)],
        lambda emit, x, y: op.where(mask, emit(op.matmul(x, y)), low),
    )
    x, y = _random(2, 4, 8), _random(2, 8, 4)
    (found,) = _run(mod, context, tmp_path, x, y)
    np.testing.assert_allclose(found, np.where(np.tril(np.ones((4, 4))), x @ y, -9), atol=1e-5)


def test_products_that_choose_a_place_are_rounded_by_themselves(
    context: BuildContext, tmp_path: Path
) -> None:
    """nvcc makes one operation of a product and a sum: (3 + 0.5) * 2 / 7 - 1 is no longer 0."""
    mod = graph(
        [(1, 1, 2, 2)],
        lambda emit, x: op.image.resize2d(
            x,
            tvm.relax.ShapeExpr((7, 8)),
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="half_pixel",
            rounding_method="round_prefer_floor",
        ),
    )
    program = HostProgram(lower(mod, context), cuda_target(), tmp_path)
    assert program.source.count("__fmul_rn(") >= 2
    x = _random(1, 1, 2, 2)
    np.testing.assert_array_equal(program(x)[0], x[:, :, [0] * 4 + [1] * 3][..., [0] * 4 + [1] * 4])


@pytest.mark.parametrize(("before", "behind"), [(65, 513), (33, 257), (20, 47)])
def test_neighbours_are_weighed_by_the_place_that_they_are_looked_up_at(
    before: int, behind: int, context: BuildContext, tmp_path: Path
) -> None:
    """Only one of both was rounded: pixels whose place is a whole number were their neighbours."""
    mod = graph(
        [(1, 1, 1, before)],
        lambda emit, x: op.image.resize2d(
            x,
            tvm.relax.ShapeExpr((1, behind)),
            layout="NCHW",
            method="linear",
            coordinate_transformation_mode="half_pixel",
        ),
    )
    x = _random(1, 1, 1, before)
    (found,) = _run(mod, context, tmp_path, x)
    places = ((np.arange(behind) + 0.5) * before / behind - 0.5).clip(0, before - 1)
    expected = np.interp(places, np.arange(before), x.ravel())
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-4)


def test_a_kernel_without_results_launches_nothing(context: BuildContext) -> None:
    mod = graph([(2, 0, 3)], lambda emit, x: op.exp(emit(op.permute_dims(x, [0, 2, 1]))))
    lowered = lower(mod, context)
    assert {str(k.attrs["collage.schedule"]) for k in kernels(lowered).values()} == {"empty"}


def test_a_result_without_elements_among_others_is_not_launched(
    context: BuildContext, tmp_path: Path
) -> None:
    """Of what has no blocks TVM makes one thread, which reads and writes where nothing is."""
    mod = graph([(5, 3)], lambda emit, x: op.split(x, [1, 5], axis=0))
    program = HostProgram(lower(mod, context), cuda_target(), tmp_path)
    assert sum(map(len, program.launches.values())) == 2


def test_borders_wrap_around_in_one_flat_loop(context: BuildContext, tmp_path: Path) -> None:
    mod = graph([(1, 2, 3)], lambda emit, x: op.nn.pad(x, [0, 0, 2, 1, 1, 2], pad_mode="circular"))
    x = _random(1, 2, 3)
    (found,) = _run(mod, context, tmp_path, x)
    np.testing.assert_array_equal(found, np.pad(x, [(0, 0), (2, 1), (1, 2)], "wrap"))


@pytest.mark.parametrize("axis", [None, 1])
def test_medians_are_sorted_on_the_device(axis: int | None, context: BuildContext) -> None:
    mod = graph([(3, 8)], lambda emit, x: op.median(x, axis))
    named = kernels(lower(mod, context))
    assert any("sort" in name for name in named)
    assert "call_packed" not in "".join(func.script() for func in named.values())
    assert cuda_source(lower(mod, context), cuda_target())


@pytest.mark.parametrize(("shape", "axis"), [((70, 9), -1), ((300, 3), -1), ((3, 5, 7), 1)])
def test_a_softmax_of_few_terms(
    shape: tuple[int, ...], axis: int, context: BuildContext, tmp_path: Path
) -> None:
    """Not a block for each of its results."""
    mod = graph([shape], lambda emit, x: op.nn.softmax(x, axis))
    lowered = lower(mod, context)
    assert {str(k.attrs["collage.schedule"]) for k in kernels(lowered).values()} == {"reduction"}
    x = _random(*shape)
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    powers = np.exp(x - x.max(axis, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(axis, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("small", "large", "axis"),
    [((1, 1, 1, 320), (1, 28, 28, 320), 3), ((4, 1, 64), (4, 500, 64), 2)],
)
def test_what_a_small_sum_scales_is_written_by_many_blocks(
    small: tuple[int, ...],
    large: tuple[int, ...],
    axis: int,
    context: BuildContext,
    tmp_path: Path,
) -> None:
    """As in a global response normalization: the few that are summed scale a whole picture."""

    def body(emit: Body, g: Any, x: Any) -> Any:
        return op.multiply(x, emit(op.divide(g, emit(op.mean(g, [axis], keepdims=True)))))

    program = HostProgram(lower(graph([small, large], body), context), cuda_target(), tmp_path)
    (launch,) = (launch for launches in program.launches.values() for launch in launches)
    assert math.prod(launch.grid) > 100
    g, x = np.abs(_random(*small)) + 0.5, _random(*large)
    expected = x * (g / g.mean(axis, keepdims=True))
    np.testing.assert_allclose(program(g, x)[0], expected, rtol=1e-4)


def test_groups_whose_weights_are_computed_are_products(context: BuildContext) -> None:
    """As a style modulates them, for each picture in its own way."""
    mod = graph(
        [(1, 32, 32, 128), (128, 3, 3, 64)],
        lambda emit, x, w: op.nn.conv2d(
            x, w, padding=1, groups=2, data_layout="NHWC", kernel_layout="OHWI"
        ),
        "float16",
    )
    families = {str(k.attrs["collage.schedule"]) for k in kernels(lower(mod, context)).values()}
    assert "tensor_core" in families
    assert not any("dlight" in family for family in families)


def test_loops_that_an_importer_wrote_run_on_the_device(context: BuildContext) -> None:
    """Nothing fuses them, so they come out under the name under which they came in."""
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType((4,), "float32"))

    def doubled(values: te.Tensor) -> te.Tensor:
        return te.extern(
            [(4,)],
            [values],
            lambda ins, outs: _twice(ins[0], outs[0]),
            name="doubled",
            dtype="float32",
        )

    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(doubled, x, primfunc_name_hint="doubled"))
        builder.emit_func_output(result)
    lowered = lower(builder.finalize(), context)
    assert "threadIdx.x" in kernels(lowered)["doubled"].script()


def _twice(source: Any, target: Any) -> Any:
    given, made = T.buffer_proxy(source), T.buffer_proxy(target)
    with IRBuilder() as builder, T.serial(0, 4) as i:
        made[i] = given[i] + given[i]
    return builder.get()


def test_rounding_to_bfloat16_is_one_kernel_and_one_instruction(context: BuildContext) -> None:
    """What was rounded by a float32's bits was read three times, so that long chains were kept in
    memory for a second kernel."""

    def chain(emit: Any, x: Any) -> Any:
        found = wide = emit(op.astype(x, "float64"))
        for factor in np.linspace(-1.3, 1.1, 20):
            found = emit(op.add(emit(op.multiply(found, wide)), relax.const(factor, "float64")))
        return op.astype(found, "bfloat16")

    lowered = lower(graph([(300,)], chain), context)
    assert len(kernels(lowered)) == 1
    source = cuda_source(lowered, cuda_target())
    assert source.count("__float2bfloat16_rn(") and "32767" not in source
    (launched,) = [line for line in source.splitlines() if "__global__" in line and "{" in line]
    assert "double*" not in launched


def test_rounding_without_tensors_of_bfloat16_needs_no_header(context: BuildContext) -> None:
    """TVM includes CUDA's for the tensors alone: a kernel that rounds between others in float32 was
    not compiled."""
    mod = graph([(300,)], lambda emit, x: op.astype(emit(op.astype(x, "bfloat16")), "float32"))
    source = cuda_source(lower(mod, context), cuda_target())
    assert "cuda_bf16.h" in source or "__float2bfloat16_rn" not in source
