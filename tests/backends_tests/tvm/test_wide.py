"""Half-precision kernels sum in float32 and round once, on a CPU; the same cases go to a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - NumPy's name for bfloat16
import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import partition_case
from benchmarks.gpu.cases.float64 import widened as in_float64
from benchmarks.gpu.cases.tvm.operators import SAMPLE, cases
from benchmarks.gpu.cases.worker import largest_error
from collage.backends.contract import BuildContext
from collage.backends.tvm.common.numbers.wide import widened
from collage.testing import graph
from tests.backends_tests.tvm import cases as tvm_cases


def _cases() -> list[Any]:
    return [
        pytest.param(case, marks=[] if case.name in SAMPLE else [pytest.mark.slow], id=case.name)
        for case in cases()
    ]


@pytest.mark.parametrize("case", _cases())
def test_operators_round_once(case: CudaCase, context: BuildContext) -> None:
    random = np.random.default_rng()
    inputs = []
    for param in case.module["main"].params:
        shape, dtype = [int(d) for d in param.ty.shape], str(param.ty.dtype)
        inputs.append(random.standard_normal(shape, np.float32).astype(dtype))
    partitioned = partition_case(case, tvm_cases.tvm_target().device)
    got = tvm_cases.run(partitioned.module, inputs, context)
    assert largest_error(got, in_float64(case.module).run(inputs)) <= case.rtol


def test_every_size_of_an_image_is_resized(context: BuildContext) -> None:
    """A row of 31 is no whole number of vectors, and places in the image are made of floats."""
    random = np.random.default_rng()
    data = random.standard_normal((1, 3, 20, 20), np.float32)
    mod = graph([data.shape], lambda _, x: relax.op.image.resize2d(x, (47, 31), layout="NCHW"))
    (got,) = tvm_cases.run(mod, [data], context)
    (wanted,) = in_float64(mod).run([data])
    tvm_cases.assert_close(got, wanted)


def _running(emit: Any, x: relax.Var) -> relax.Expr:
    """What stands before each place, put together in steps: parts of bfloat16 that only move."""
    for step in (1, 2, 4):
        begin = emit(relax.op.strided_slice(x, [1], [0], [step]))
        before = emit(relax.op.strided_slice(x, [1], [0], [8 - step]))
        here = emit(relax.op.strided_slice(x, [1], [step], [8]))
        larger = emit(relax.op.where(emit(relax.op.greater(before, here)), before, here))
        x = emit(relax.op.concat([begin, larger], 1))
    return x


def _largest(emit: Any, x: relax.Var) -> relax.Expr:
    parts = [emit(relax.op.strided_slice(x, [1], [i], [i + 5])) for i in range(4)]
    return relax.op.concat([emit(relax.op.max(p, [1], keepdims=True)) for p in parts], 1)


@pytest.mark.parametrize("schedule", ["default", "plain", "none"])
@pytest.mark.parametrize("body", [_running, _largest])
def test_bfloat16_that_only_moves_is_the_same(
    body: Any, schedule: str, context: BuildContext
) -> None:
    data = np.random.default_rng().standard_normal((3, 8, 16)).astype("bfloat16")
    (got,) = tvm_cases.run(
        graph([data.shape], body, "bfloat16"), [data], context, schedule=schedule
    )
    wide = data.astype("float32")
    if body is _running:
        wanted = np.maximum.accumulate(wide, 1)
    else:
        wanted = np.stack([wide[:, i : i + 5].max(1) for i in range(4)], 1)
    np.testing.assert_array_equal(got.astype("float32"), wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("extents", [(5, 2, 2, 8), (16, 8, 8, 16), (3, 40, 4, 64)])
def test_axes_that_are_exchanged_keep_their_numbers(
    extents: tuple[int, ...], dtype: str, context: BuildContext
) -> None:
    """Both directions of a recurrent layer side by side: its kernel addresses memory by itself."""
    data = np.random.default_rng().standard_normal(extents).astype(dtype)
    steps, first, second, width = extents

    def build(emit: Any, x: relax.Var) -> relax.Expr:
        turned = emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
        return relax.op.reshape(turned, (steps, second, first * width))

    (got,) = tvm_cases.run(graph([extents], build, dtype), [data], context)
    wanted = data.transpose(0, 2, 1, 3).reshape(steps, second, first * width)
    np.testing.assert_array_equal(got.astype("float32"), wanted.astype("float32"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("schedule", ["default", "none"])
def test_what_is_chosen_by_comparing_narrow_numbers(
    schedule: str, dtype: str, context: BuildContext
) -> None:
    """A leaky ReLU: TVM's compiler stopped where it turned a comparison of bfloat16 around."""
    data = np.random.default_rng().standard_normal((3, 8, 32)).astype(dtype)
    mod = graph([data.shape], lambda _, x: relax.op.nn.leakyrelu(x, 0.25), dtype)
    (got,) = tvm_cases.run(mod, [data], context, schedule=schedule)
    wide = data.astype("float32")
    wanted = np.where(wide > 0, wide, wide * 0.25).astype(dtype)
    np.testing.assert_array_equal(got.astype("float32"), wanted.astype("float32"))


@pytest.mark.parametrize("name", ["log2", "ceil"])
def test_functions_are_computed_in_float32(name: str) -> None:
    """1 + 2 ** -12 is 1 in float16: its logarithm would be zero, and so would what is above 1."""
    x = te.placeholder((4,), "float16", name="x")
    one, many = tirx.const(1, "float16"), tirx.const(4096, "float16")
    found = te.compute((4,), lambda i: getattr(te, name)(one + x[i]) * many)
    func = widened(te.create_prim_func([x, found]))
    run = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")
    data, out = np.full(4, 2**-12, np.float16), tvm.runtime.tensor(np.zeros(4, np.float16))
    run["main"](tvm.runtime.tensor(data), out)
    wanted = getattr(np, name)(1 + data.astype("float64")) * 4096
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-3)


def test_what_only_moves_stays_narrow() -> None:
    x = te.placeholder((4, 8), "float16", name="x")
    padded = te.compute(
        (4, 10),
        lambda i, j: tirx.if_then_else(j < 8, x[i, tirx.min(j, 7)], tirx.const(0, "float16")),
    )
    highest = te.compute((4, 10), lambda i, j: tirx.max(padded[i, j], padded[i, 0]))
    func = te.create_prim_func([x, highest])
    tvm.ir.assert_structural_equal(widened(func), func)


def test_the_lowest_number_is_lower_where_values_are_wide() -> None:
    """A maximum over wide values, all of them below what float16 can hold."""
    x = te.placeholder((64,), "float16", name="x")
    k = te.reduce_axis((0, 64), name="k")
    square = te.compute((64,), lambda i: x[i] * x[i] * tirx.const(-1000.0, "float16"))
    highest = te.compute((1,), lambda _: te.max(square[k], axis=k))
    result = te.compute((1,), lambda i: highest[i] / tirx.const(4000.0, "float16"))
    func = widened(te.create_prim_func([x, result]))
    run = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")
    data = np.full(64, 16, np.float16)
    out = tvm.runtime.tensor(np.zeros(1, np.float16))
    run["main"](tvm.runtime.tensor(data), out)
    assert out.numpy()[0] == -64.0


def test_clipping_to_the_largest_narrow_number_clips() -> None:
    x = te.placeholder((4,), "float16", name="x")
    limit = float(np.finfo(np.float16).max)
    clipped = te.compute((4,), lambda i: tirx.min(x[i] * x[i], tirx.const(limit, "float16")))
    func = widened(te.create_prim_func([x, clipped]))
    run = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")
    out = tvm.runtime.tensor(np.zeros(4, np.float16))
    run["main"](tvm.runtime.tensor(np.full(4, 1000, np.float16)), out)
    assert (out.numpy() == np.float16(limit)).all()


def test_kernels_written_by_hand_stay_what_they_are() -> None:
    """A sort on a GPU binds threads and declares buffers by itself."""
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}):
        x = te.placeholder((3, 37), "float16", name="x")
        func = te.create_prim_func([x, topi.gpu.sort(x, axis=1)])
    assert widened(func).same_as(func)
