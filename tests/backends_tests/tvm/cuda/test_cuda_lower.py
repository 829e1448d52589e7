"""What TVM's own partitions become on a GPU: every store in a thread, sums in float32."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from benchmarks.gpu.cases.tvm.cases import cases
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import TargetError
from collage.backends.contract.registry import get_backend
from collage.backends.toolchain import cuda_runtime
from collage.backends.tvm.common.numbers.wide import compute_wide
from collage.backends.tvm.cuda.legalize import legalizations
from collage.backends.tvm.cuda.schedules import SCHEDULE_ATTR, Gpu, schedule_function
from collage.backends.tvm.cuda.schedules._base import unbound_stores
from collage.backends.tvm.cuda.schedules.tiles import TILES, choose_tile
from collage.testing import graphs
from tests.backends_tests.tvm import cases as tvm_cases
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

op = relax.op


def graph(body: Callable[..., relax.Expr], *shapes: tuple[int, ...], dtype: str) -> tvm.IRModule:
    """A module whose ``main`` computes ``body`` inline."""
    return graphs.graph(shapes, body, dtype)


def weights(*shape: int, dtype: str = "float16") -> relax.Expr:
    array = np.random.default_rng(3).standard_normal(shape, np.float32)
    return relax.const(array.astype(dtype), dtype)


@pytest.mark.timeout(60)
def test_a_chain_of_activations_stays_as_long_as_it_is(context: BuildContext) -> None:
    """Each reads its operand twice: all of them in one expression would double with each."""

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        for shift in range(12):
            x = emit(op.nn.relu(emit(op.add(x, relax.const(np.float32(shift))))))
        return x

    for name, func in kernels(lower(graph(body, (128, 128), dtype="float32"), context)).items():
        assert unbound_stores(func) == [], name
        assert len(str(func.script())) < 20_000, name


@pytest.mark.parametrize("schedule", ["default", "dlight", "none"])
def test_every_store_is_in_a_thread(schedule: str, context: BuildContext) -> None:
    for case in cases():
        partitioned = partition_case(case, cuda_target())
        found = kernels(lower(partitioned.module, context, schedule=schedule))
        assert found, case.name
        for name, func in found.items():
            assert unbound_stores(func) == [], f"{case.name}: {name}"
            assert bool(func.attrs["tirx.is_scheduled"]), f"{case.name}: {name}"


def test_unscheduled_stores_are_noticed(context: BuildContext) -> None:
    data = np.zeros((4, 64), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.relu(x)), [data])
    backend = get_backend("tvm")
    plain = BackendTarget(
        "tvm", tvm_cases.tvm_target().device, backend.parse_options({"schedule": "none"})
    )
    (func,) = kernels(backend.lower(mod, plain, context)).values()
    assert unbound_stores(func) != []


def test_operators_inline_in_main_are_scheduled(context: BuildContext) -> None:
    mod = graph(lambda emit, x: op.nn.relu(emit(op.add(x, x))), (4, 64), dtype="float16")
    (func,) = kernels(lower(mod, context)).values()
    assert str(func.attrs[SCHEDULE_ATTR]) == "elementwise"


def test_operators_of_one_partition_are_one_kernel(context: BuildContext) -> None:
    case = next(case for case in cases() if case.name == "dense_dense-float16")
    partitioned = partition_case(case, cuda_target())
    assert list(kernels(lower(partitioned.module, context))) == ["fused_matmul_add_gelu"]


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (lambda emit, x, y: op.matmul(x, y), [(2, 128, 64), (64, 96)]),
        (lambda emit, x, y: op.matmul(x, y), [(5, 40, 24), (5, 24, 17)]),
        (
            lambda emit, x: op.nn.conv2d(
                x, weights(32, 3, 3, 16), data_layout="NHWC", kernel_layout="OHWI"
            ),
            [(1, 14, 14, 16)],
        ),
    ],
)
def test_half_products_run_on_tensor_cores(
    body: Callable[..., relax.Expr], shapes: list[tuple[int, ...]], context: BuildContext
) -> None:
    (func,) = kernels(lower(graph(body, *shapes, dtype="float16"), context)).values()
    assert str(func.attrs[SCHEDULE_ATTR]) == "tensor_core"
    text = func.script()
    assert "tvm_mma_sync" in text
    # The accumulators are the only fragments in float32, TVMScript's default.
    assert re.search(r'scope="wmma.accumulator"', text)
    assert not re.search(r'"float16", .*scope="wmma.accumulator"', text)


def test_older_chips_lack_the_shared_memory() -> None:
    func = _fused_matmul("float16")
    old = tvm.target.Target({"kind": "cuda", "arch": "sm_75", "max_threads_per_block": 1024})
    scheduled = schedule_function(func, Gpu.of_target(old))
    assert str(scheduled.attrs[SCHEDULE_ATTR]).startswith("dlight.Matmul")


def test_float32_products_are_exact_float32(context: BuildContext) -> None:
    mod = graph(lambda emit, x, y: op.matmul(x, y), (128, 64), (64, 96), dtype="float32")
    (func,) = kernels(lower(mod, context)).values()
    assert "dlight.Matmul" in str(func.attrs[SCHEDULE_ATTR])
    assert "mma_sync" not in func.script()


def _fused_matmul(dtype: str) -> tirx.PrimFunc:
    mod = graph(lambda emit, x, y: op.matmul(x, y), (128, 64), (64, 96), dtype=dtype)
    (func,) = kernels(compute_wide()(relax.transform.LegalizeOps()(mod))).values()
    return func


@pytest.mark.parametrize("name", ["nn.softmax", "nn.gelu_tanh", "mean", "nn.silu"])
def test_half_operators_compute_in_float32(name: str, context: BuildContext) -> None:
    operator = getattr(op.nn, name.removeprefix("nn.")) if "nn." in name else getattr(op, name)
    mod = graph(
        lambda emit, x: operator(x, axis=-1) if name in ("nn.softmax", "mean") else operator(x),
        (8, 512),
        dtype="float16",
    )
    (func,) = kernels(lower(mod, context)).values()
    stores = re.findall(r"^\s*(\w+)\[.*\] = (.*)$", func.script(), re.MULTILINE)
    arithmetic = [value for _, value in stores if re.search(r"exp|tanh|sigmoid| [*/+] ", value)]
    assert arithmetic
    assert all("float16(" not in value.replace("T.Cast", "") for value in arithmetic)
    assert 'T.Cast("float16"' in func.script()


def test_roundings_inside_a_kernel_vanish(context: BuildContext) -> None:
    mod = graph(
        lambda emit, x: op.exp(emit(op.tanh(emit(op.multiply(x, x))))), (64, 64), dtype="float16"
    )
    (func,) = kernels(lower(mod, context)).values()
    assert func.script().count('T.Cast("float16"') == 1


def test_reshapes_cost_no_kernel(context: BuildContext) -> None:
    def body(emit: Any, x: relax.Var) -> relax.Expr:
        flat = emit(op.reshape(x, relax.ShapeExpr((91, 16))))
        return op.nn.softmax(emit(op.matmul(flat, weights(16, 24))), axis=-1)

    lowered = lower(graph(body, (1, 7, 13, 16), dtype="float16"), context)
    text = tvm.compile(lowered, target=cuda_target()).as_text()
    assert "vm.builtin.reshape" in text
    assert "@reshape " not in text


def test_tiles_fill_the_chip() -> None:
    gpu = Gpu.of_target(cuda_target())
    large = choose_tile(1, 4096, 4096, gpu)
    small = choose_tile(1, 128, 768, gpu)
    assert (large.rows, large.columns) == (128, 128)
    assert small.blocks(1, 128, 768) > TILES[0].blocks(1, 128, 768)
    narrow = choose_tile(1, 50176, 64, gpu)
    assert narrow.columns == 64


@pytest.mark.parametrize(
    ("body", "shape", "launches"),
    [
        (lambda emit, x: op.nn.softmax(x, axis=1), (2, 64, 9, 7), 1),
        (lambda emit, x: op.mean(x, [2, 3]), (8, 64, 28, 28), 1),
        (lambda emit, x: op.mean(x, None), (2048, 4096), 2),
        (lambda emit, x: op.sum(x, None), (2048, 4096), 2),
        (lambda emit, x: op.mean(x, [0]), (16384, 64), 2),
        (lambda emit, x: op.matmul(x, weights(4096, 512)), (2, 4096), 2),
        (
            lambda emit, x: op.nn.group_norm(x, weights(384), weights(384), 32, 1, [2, 3]),
            (1, 384, 64, 64),
            2,
        ),
        (
            lambda emit, x: op.nn.group_norm(x, weights(64), weights(64), 32, 1, [2, 3]),
            (8, 64, 32, 32),
            1,
        ),
        (
            lambda emit, x: op.nn.conv2d(x, weights(48, 1152, 1, 1)),
            (1, 1152, 1, 1),
            1,
        ),
    ],
)
def test_reductions_share_their_terms(
    body: Callable[..., relax.Expr], shape: tuple[int, ...], launches: int, context: BuildContext
) -> None:
    (func,) = kernels(lower(graph(body, shape, dtype="float16"), context)).values()
    assert str(func.attrs[SCHEDULE_ATTR]) == "reduction"
    assert func.script().count('thread="blockIdx.x"') == launches


@pytest.mark.parametrize("shape", [(1, 64, 56, 56), (2, 40, 7, 7), (1, 32, 6, 10, 14)])
def test_layouts_change_through_shared_memory(
    shape: tuple[int, ...], context: BuildContext
) -> None:
    order = [0, *range(2, len(shape)), 1]
    mod = graph(lambda emit, x: op.permute_dims(x, order), shape, dtype="float16")
    (func,) = kernels(lower(mod, context)).values()
    assert str(func.attrs[SCHEDULE_ATTR]) == "transpose"
    assert 'scope="shared"' in func.script()


@pytest.mark.parametrize(("stride", "names"), [(2, 1), (3, 2)])
def test_transposed_convolutions_run_on_tensor_cores(
    stride: int, names: int, context: BuildContext
) -> None:
    """Where all phases read the same places, they are put in order by a kernel of its own."""
    mod = graph(
        lambda emit, x: op.nn.conv2d_transpose(
            x,
            weights(32, 3, 3, 24),
            strides=stride,
            padding=(1, 1, 1, 1) if stride == 2 else (0, 0, 0, 0),
            output_padding=1 if stride == 2 else 0,
            data_layout="NHWC",
            kernel_layout="IHWO",
        ),
        (1, 8, 8, 32),
        dtype="float16",
    )
    found = kernels(lower(mod, context))
    chosen = [str(func.attrs[SCHEDULE_ATTR]) for func in found.values()]
    assert len(chosen) == names and "tensor_core" in chosen


def test_schedules_that_cannot_be_compiled_are_refused(context: BuildContext) -> None:
    """DLight's for this: its reduction is shared between threads above other loops."""
    mod = graph(
        lambda emit, x: op.nn.conv2d_transpose(x, weights(100, 64, 4, 4)),
        (1, 100, 1, 1),
        dtype="float16",
    )
    lowered = lower(mod, context)
    assert tvm.compile(lowered, target=cuda_target()) is not None


def test_groups_of_channels_run_on_tensor_cores(context: BuildContext) -> None:
    mod = graph(
        lambda emit, x: op.nn.conv1d(
            x, weights(64, 16, 16), groups=4, data_layout="NWC", kernel_layout="OWI"
        ),
        (1, 50, 64),
        dtype="float16",
    )
    # The other one is a reshape, which costs no kernel in the end.
    chosen = [str(func.attrs[SCHEDULE_ATTR]) for func in kernels(lower(mod, context)).values()]
    assert sorted(chosen) == ["elementwise", "tensor_core"]


@pytest.mark.parametrize(
    ("begin", "width", "wide"), [(1, 41, False), (8, 40, True), (0, 41, False)]
)
def test_loads_are_wide_where_they_are_aligned(
    begin: int, width: int, wide: bool, context: BuildContext
) -> None:
    mod = graph(
        lambda emit, x: op.nn.relu(emit(op.strided_slice(x, [1], [begin], [begin + 32]))),
        (8192, width),
        dtype="float16",
    )
    (func,) = kernels(lower(mod, context)).values()
    assert ("T.vectorized" in func.script()) is wide


@pytest.mark.parametrize(("longer", "wide"), [("float64", False), ("float32", True)])
def test_threads_have_one_number_where_halves_are_computed_with_in_float64(
    longer: str, wide: bool, context: BuildContext
) -> None:
    """Eight of them one after the other, each of many operations, took nine times as long."""

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        y = emit(op.astype(x, longer))
        return emit(op.astype(emit(op.exp(emit(op.multiply(y, y)))), "float16"))

    (func,) = kernels(lower(graph(body, (8192, 128), dtype="float16"), context)).values()
    assert ("T.vectorized" in func.script()) is wide


def test_means_of_many_halves_can_be_written() -> None:
    """TVM's own divides by a literal of the operand's type, which ends at 65504."""
    mod = graph(lambda emit, x: op.mean(x, [1]), (4, 70000), dtype="float16")
    legalized = relax.transform.LegalizeOps(dict(legalizations()))(mod)
    assert "70000" in kernels(legalized).popitem()[1].script()


def test_attention_is_a_chain_of_products(context: BuildContext) -> None:
    mod = graph(
        lambda emit, q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft"),
        *[(1, 64, 2, 32)] * 3,
        dtype="float16",
    )
    chosen = [str(func.attrs[SCHEDULE_ATTR]) for func in kernels(lower(mod, context)).values()]
    assert chosen.count("tensor_core") == 2


def test_tuning_without_a_gpu_is_refused(context: BuildContext) -> None:
    if cuda_runtime.has_device():
        pytest.skip("there is a GPU")
    mod = graph(lambda emit, x: op.nn.relu(x), (4, 64), dtype="float16")
    with pytest.raises(TargetError, match="measures on a GPU, and this machine has none"):
        lower(mod, context, schedule="metaschedule")


def test_dlight_is_for_gpus(context: BuildContext) -> None:
    data = np.zeros((4, 64), np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(op.nn.relu(x)), [data])
    backend = get_backend("tvm")
    options = backend.parse_options({"schedule": "dlight"})
    with pytest.raises(TargetError, match="'dlight' is for GPU targets"):
        backend.lower(mod, BackendTarget("tvm", tvm_cases.tvm_target().device, options), context)
