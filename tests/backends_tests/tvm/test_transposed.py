"""Transposed convolutions of both devices, run on this CPU and held to the numpy reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from benchmarks.gpu.cases.cudnn._graphs import convolution
from collage.backends.contract.llvm import without_interleaving
from collage.backends.tvm.cpu.legalize import legalizations
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.cuda.transposed import legalize_transposed_convolution
from collage.cost.reference import evaluate, largest_error

EXTENTS = (7, 5, 4)
TARGET = without_interleaving(tvm.target.Target("llvm"))


def drawn(rng: np.random.Generator, rank: int, *, dilated: bool = True) -> dict[str, Any]:
    """Attributes of one problem, all that the operator has; its result has elements."""
    strides = rng.integers(1, 5, rank)
    kernel = rng.integers(1, 6, rank)
    dilation = rng.integers(1, 4, rank) if dilated and rng.integers(2) else np.ones(rank, int)
    reach = (kernel - 1) * dilation
    return {
        "kernel": kernel.tolist(),
        "strides": strides.tolist(),
        "dilation": dilation.tolist(),
        "padding": [int(rng.integers(0, r // 2 + 1)) for r in (*reach, *reach)],
        "output_padding": [int(rng.integers(0, s)) for s in strides],
        "groups": int(rng.choice([1, 2, 4])),
        "channels_last": bool(rng.integers(2)),
    }


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_transposed_convolution(rank: int, dtype: str) -> None:
    rng = np.random.default_rng()
    for _ in range(4):
        attrs = drawn(rng, rank)
        kernel = attrs.pop("kernel")
        mod = convolution(
            (2, 8, *EXTENTS[:rank]), (12, *kernel), (), dtype, transposed=True, **attrs
        )
        x = rng.normal(size=[int(n) for n in mod["main"].params[0].ty.shape]).astype(dtype)
        names = {f"relax.nn.conv{rank}d_transpose": legalize_transposed_convolution}
        program = relax.transform.LegalizeOps(names)(mod)
        machine = relax.VirtualMachine(tvm.compile(program, target=TARGET), tvm.cpu())
        actual = machine["main"](tvm.runtime.tensor(x)).numpy()
        (expected,) = evaluate(mod, [x])
        limit = 1e-5 if dtype == "float32" else 1e-3
        assert largest_error(actual, expected) < limit, attrs


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_cpu_makes_ordinary_convolutions_of_them(rank: int) -> None:
    """Of any stride, padding and groups, with elements that no place of the result reads."""
    rng = np.random.default_rng()
    for _ in range(4):
        attrs = {**drawn(rng, rank, dilated=False), "channels_last": False}
        kernel = attrs.pop("kernel")
        mod = convolution(
            (2, 8, *EXTENTS[:rank]), (12, *kernel), (), "float32", transposed=True, **attrs
        )
        x = rng.normal(size=[int(n) for n in mod["main"].params[0].ty.shape]).astype("float32")
        program = relax.transform.LegalizeOps(legalizations(Machine(64, 32, 2)))(mod)
        assert any("phases" in var.name_hint for var in program.functions)
        machine = relax.VirtualMachine(tvm.compile(program, target=TARGET), tvm.cpu())
        actual = machine["main"](tvm.runtime.tensor(x)).numpy()
        (expected,) = evaluate(mod, [x])
        assert largest_error(actual, expected) < 1e-5, attrs


def test_only_taps_that_meet_data_are_gone_through() -> None:
    """Two of four along each axis, for every second place has data.

    Channels last, there is a product for each phase instead.
    """
    attrs = {"transposed": True, "strides": 2, "channels_last": False}
    mod = convolution((1, 8, 9, 9), (12, 4, 4), (), "float16", **attrs)
    names = {"relax.nn.conv2d_transpose": legalize_transposed_convolution}
    program = relax.transform.LegalizeOps(names)(mod)
    (func,) = (f for f in program.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    schedule = tvm.s_tir.Schedule(func)
    block = schedule.get(schedule.get_sblock("conv_transpose"))
    reduced = [v for v in block.iter_vars if v.iter_type == tvm.tirx.IterVar.CommReduce]
    assert [int(v.dom.extent) for v in reduced] == [8, 2, 2]


def test_blocked_layouts_are_left_alone() -> None:
    x = relax.Var("x", relax.TensorType((1, 2, 9, 9, 4), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8, 3, 3), "float32"))
    call = relax.op.nn.conv2d_transpose(x, w, data_layout="NCHW4c")
    call = relax.BlockBuilder().normalize(call)
    assert legalize_transposed_convolution(relax.BlockBuilder(), call).same_as(call)
