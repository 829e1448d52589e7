"""Kernels whose loops read an operand that begins anew every few steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from collage.backends.devices import CPU
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import plain, schedule_function
from collage.backends.tvm.cpu.schedules.repeating import cut_repeating

MACHINE = Machine(vector_bytes=32, num_registers=16, num_threads=2)
ROWS = 6


def shapes_of(divisor: int, extent: int, reads: int, shift: int) -> list[tuple[int, int]]:
    """Of the row and of the operands beside it."""
    return [(ROWS, divisor), *[(divisor, (extent + shift) // divisor + 4)] * reads]


def kernel(divisor: int, extent: int, reads: int, shift: int) -> tirx.PrimFunc:
    """A row at ``(k + shift) % divisor`` beside operands at the remainder and the quotient."""
    shapes = shapes_of(divisor, extent, reads, shift)
    x, *tables = (te.placeholder(s, "float32", name=f"t{n}") for n, s in enumerate(shapes))

    def value(i: Any, k: Any) -> Any:
        rest, whole = tirx.floormod(k + shift, divisor), tirx.floordiv(k + shift, divisor)
        total: Any = tirx.const(0, "float32")
        for table in tables:
            inside = tirx.Cast("float32", table[rest, whole + 1] <= x[i, rest])
            total = total + (x[i, rest] + table[rest, whole]) * inside
        return total

    result = te.compute((ROWS, extent), value, name="result")
    func = te.create_prim_func([x, *tables, result])
    return func.with_attr("global_symbol", "main")


def reference(arrays: list[NDArray[np.float32]], extent: int, shift: int) -> NDArray[np.float64]:
    x, *tables = (array.astype("float64") for array in arrays)
    whole, rest = np.divmod(np.arange(extent) + shift, x.shape[1])
    row = x[:, rest]
    return sum(
        ((row + t[rest, whole]) * (t[rest, whole + 1] <= row) for t in tables),
        start=np.zeros((len(x), extent)),
    )


def run(func: tirx.PrimFunc, arrays: list[NDArray[np.float32]], extent: int) -> Any:
    target = tvm.target.Target(CPU.complete({"kind": "llvm"}))
    library = tvm.compile(tvm.IRModule({"main": func}), target)
    result = tvm.runtime.empty((ROWS, extent), "float32")
    library["main"](*[tvm.runtime.tensor(array) for array in arrays], result)
    return result.numpy()


@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("extent", [32, 37, 100])
@pytest.mark.parametrize("divisor", [2, 4, 6, 8, 16])
def test_no_row_is_read_past_its_end(divisor: int, extent: int, shift: int) -> None:
    func = kernel(divisor, extent, 7, shift)
    rng = np.random.default_rng(extent)
    shapes = shapes_of(divisor, extent, 7, shift)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    right = reference(arrays, extent, shift)
    for scheduled in (func, plain.schedule(func), schedule_function(func, MACHINE)):
        result = run(cut_repeating(scheduled, MACHINE), arrays, extent)
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


def _loops(func: tirx.PrimFunc) -> list[tuple[int, int]]:
    sch = s_tir.Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_sblock("root"))
    return [(int(sch.get(x).extent), int(sch.get(x).kind)) for x in sch.get_loops(block)]


def test_a_loop_is_cut_by_all_powers_of_two_that_divide_it() -> None:
    x = te.placeholder((4,), "float32", name="x")
    y = te.placeholder((16,), "float32", name="y")
    z = te.compute((64,), lambda k: x[k % 4] + y[k % 16] + y[k // 4], name="z")
    cut = cut_repeating(te.create_prim_func([x, y, z]), MACHINE)
    serial = int(tirx.ForKind.SERIAL)
    assert _loops(cut) == [(4, serial), (4, serial), (4, serial)]


def test_what_no_cut_rids_of_remainders_is_vectors() -> None:
    x = te.placeholder((4,), "float32", name="x")
    z = te.compute((64,), lambda k: x[(k + 1) % 4], name="z")
    cut = cut_repeating(te.create_prim_func([x, z]), MACHINE)
    assert _loops(cut)[-1] == (8, int(tirx.ForKind.VECTORIZED))


@pytest.mark.parametrize("divisor", [3, 12])
def test_other_divisors_stay(divisor: int) -> None:
    func = kernel(divisor, 36, 2, 0)
    assert _loops(cut_repeating(func, MACHINE)) == _loops(func)
