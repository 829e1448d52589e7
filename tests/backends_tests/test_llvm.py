"""Programs that LLVM got wrong, compiled as programs of this project are, beside numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.target import Target

from collage.backends.contract import BuildContext
from collage.backends.contract.llvm import without_interleaving
from collage.backends.devices import CPU, CUDA

GROUPS, SUMMANDS = 4, 2


def outer_products(places: int, taps: int, made: int) -> tvm.IRModule:
    """``y[g * made + o, p * taps + t]``, sums of ``x[g, c, p] * w[g, c, o, t]`` over ``c``."""
    x = te.placeholder((GROUPS * SUMMANDS, places), "float32", name="x")
    w = te.placeholder((GROUPS * SUMMANDS, made, taps), "float32", name="w")
    c = te.reduce_axis((0, SUMMANDS), name="c")

    def term(q: te.Var, i: te.Var) -> te.PrimExpr:
        row = q // made * SUMMANDS + c
        return te.sum(x[row, i // taps] * w[row, q % made, i % taps], axis=c)

    y = te.compute((GROUPS * made, places * taps), term, name="y")
    return tvm.IRModule({"main": te.create_prim_func([x, w, y])})


@pytest.mark.parametrize("taps", [2, 4, 8, 16])
@pytest.mark.parametrize("made", [3, 4])
def test_each_vector_of_a_step_begins_where_it_has_to(taps: int, made: int, tmp_path: Path) -> None:
    native = {"kind": "llvm"} | CPU.complete({})
    context = BuildContext(tmp_path, tmp_path)
    rng = np.random.default_rng()
    for places in (4, 16, 64):
        x = rng.normal(size=(GROUPS, SUMMANDS, places)).astype("float32")
        w = rng.normal(size=(GROUPS, SUMMANDS, made, taps)).astype("float32")
        expected = np.einsum("gcp,gcot->gopt", x, w).reshape(GROUPS * made, -1)
        for target in (Target("llvm"), Target(native)):
            with CPU.compiling(target, context) as compiling:
                compiled = tvm.compile(outer_products(places, taps, made), target=compiling)
            actual = tvm.runtime.tensor(np.zeros(expected.shape, "float32"))
            rows = (x.reshape(-1, places), w.reshape(-1, made, taps))
            compiled["main"](*map(tvm.runtime.tensor, rows), actual)
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_what_else_llvm_is_told_stays() -> None:
    given = Target({"kind": "llvm", "mcpu": "x86-64-v3", "cl-opt": ["-unroll-runtime:bool=0"]})
    told = without_interleaving(given)
    assert str(told.attrs["mcpu"]) == "x86-64-v3"
    assert [str(option) for option in told.attrs["cl-opt"]] == [
        "-unroll-runtime:bool=0",
        "-interleave-loops:bool=0",
    ]
    assert str(without_interleaving(told)) == str(told)
    cuda = CUDA.any_target()
    assert without_interleaving(cuda) is cuda
