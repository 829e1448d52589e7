"""Rows scattered on a processor: every reduction, places that come twice, and how long it takes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from collage.backends.tvm.common.scatter import Scatter
from collage.backends.tvm.cpu.scatter import _pieces, legalize_scatter_nd
from collage.backends.tvm.cpu.schedules import Machine
from collage.testing import graph
from tests.backends_tests.tvm import cases as tvm_cases

COMBINED = {
    "update": lambda _, update: update,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def scattered(
    data: np.ndarray, places: np.ndarray, updates: np.ndarray, reduction: str
) -> np.ndarray:
    wanted = data.copy()
    for at in np.ndindex(places.shape[:-1]):
        where = tuple(places[at])
        if all(0 <= place < extent for place, extent in zip(where, data.shape, strict=False)):
            wanted[where] = COMBINED[reduction](wanted[where], updates[at])
    return wanted


def module(arrays: list[np.ndarray], reduction: str) -> tvm.IRModule:
    def body(_: Any, x: relax.Var, i: relax.Var, v: relax.Var) -> relax.Expr:
        return op.scatter_nd(x, i, v, reduction=reduction)

    return graph([array.shape for array in arrays], body, [str(array.dtype) for array in arrays])


def drawn(shape: tuple[int, ...], places: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng()
    depth = places[-1]
    low, high = -1, min(shape[:depth]) + 1
    indices = rng.integers(low, high, places).astype(dtype)
    updates = rng.standard_normal((*places[:-1], *shape[depth:])).astype("float32")
    return [rng.standard_normal(shape).astype("float32"), indices, updates]


@pytest.mark.parametrize("reduction", COMBINED)
@pytest.mark.parametrize(
    ("shape", "places", "dtype"),
    [
        ((16, 37), (50, 1), "int64"),
        ((9, 8), (30, 2), "int32"),
        ((5, 6, 4, 3), (3, 7, 2), "int64"),
        # Rows that threads share.
        ((20, 128), (300, 1), "int64"),
    ],
)
def test_rows_are_scattered_one_after_the_other(
    reduction: str,
    shape: tuple[int, ...],
    places: tuple[int, ...],
    dtype: str,
    context: BuildContext,
) -> None:
    arrays = drawn(shape, places, dtype)
    (got,) = tvm_cases.run(module(arrays, reduction), arrays, context)
    np.testing.assert_allclose(got, scattered(*arrays, reduction), rtol=1e-5, atol=1e-5)


def test_threads_share_long_rows_alone() -> None:
    def of(count: int, row: int) -> Scatter:
        return Scatter(1 << 20, count, row, lambda *_: None)

    assert [_pieces(of(1 << 18, row), 4) for row in (1, 16, 32, 63, 96)] == [1, 1, 2, 3, 4]
    assert _pieces(of(1 << 10, 96), 4) == 1


def test_edges_of_a_graph_take_no_parallel_loop_each(context: BuildContext) -> None:
    """TOPI's kernel took 85 times as long as these elements are worth."""
    arrays = drawn((64, 32), (256, 1), "int64")
    arrays[1] = np.clip(arrays[1], 0, 63)  # TOPI's kernel trusts them.
    mod = module(arrays, "add")
    machine = Machine(vector_bytes=32, num_registers=16, num_threads=2)

    def seconds(ours: bool) -> float:
        own = {"relax.scatter_nd": lambda b, call: legalize_scatter_nd(b, call, machine)}
        with tvm.target.Target("llvm"):
            lowered = relax.transform.LegalizeOps(own if ours else {})(mod)
        vm = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        vm["main"](*tensors)
        taken = []
        for _ in range(5):
            begin = time.process_time()
            for _ in range(50):
                vm["main"](*tensors)
            taken.append(time.process_time() - begin)
        return min(taken)

    assert seconds(ours=True) < 0.5 * seconds(ours=False)
