"""Scatters that many threads reduce to one place, and loops by hand with a thread for each turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.backends.relax.independent import each
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

pytestmark = pytest.mark.cuda

_NODES, _WIDTH, _EDGES = 7, 5, 90
_REDUCED = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.mark.parametrize("how", _REDUCED)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_the_memory_reduces_what_comes_to_one_place(
    how: str, dtype: str, context: BuildContext, tmp_path: Path
) -> None:
    random = np.random.default_rng()
    # No sign, both signs, and none but negative numbers: extremes go by the bits of each.
    x = (random.standard_normal((_NODES, _WIDTH)) * 3).astype(dtype)
    values = (random.standard_normal((_EDGES, _WIDTH)) * 3).astype(dtype)
    values[:, 1], values[:, 2] = np.abs(values[:, 1]), -np.abs(values[:, 2])
    nodes = random.integers(0, _NODES, (_EDGES, 1))
    if dtype.startswith("float"):
        values[3, 3], values[4, 4] = np.nan, -np.inf
    mod = graph(
        [x.shape, values.shape],
        lambda _, data, updates: op.scatter_nd(data, relax.const(nodes, "int64"), updates, how),
        dtype,
    )
    lowered = lower(mod, context)
    assert {str(f.attrs["collage.schedule"]) for f in kernels(lowered).values()} == {"own threads"}
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x, values)
    expected = x.copy()
    _REDUCED[how].at(expected, nodes[:, 0], values)
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("bins", [3, 700])
def test_blocks_add_up_what_many_updates_come_to(
    dtype: str, bins: int, context: BuildContext, tmp_path: Path
) -> None:
    random = np.random.default_rng()
    count = 20_001
    x = (random.standard_normal(bins) * 3).astype(dtype)
    values = (random.standard_normal(count) * 3).astype(dtype)
    # Some are outside, and some are counted from behind.
    places = random.integers(-bins, bins + 2, count)
    mod = graph(
        [x.shape, values.shape],
        lambda _, data, updates: op.scatter_elements(
            data, relax.const(places, "int64"), updates, 0, "add"
        ),
        dtype,
    )
    lowered = lower(mod, context)
    (func,) = kernels(lowered).values()
    assert "shared" in func.script()
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x, values)
    expected, inside = x.astype("float64" if "float" in dtype else dtype), places < bins
    np.add.at(expected, places[inside], values[inside])
    np.testing.assert_allclose(found, expected, 1e-3 if dtype == "float32" else 1e-10, atol=1e-4)


def test_turns_that_are_independent_have_threads(context: BuildContext, tmp_path: Path) -> None:
    """One thread went through all of them: each counts how often a number can be halved."""

    def program(given: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        with IRBuilder() as made, T.seq_scope():
            x, found = T.buffer_proxy(given), T.buffer_proxy(result)
            left = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            with each(int(given.shape[0])) as turn, T.seq_scope():
                left[0] = x[turn]
                found[turn] = 0
                with T.While(left[0] > 1), T.seq_scope():
                    left[0] = left[0] // 2
                    found[turn] = found[turn] + 1
        return made.get()

    def halvings(x: te.Tensor) -> te.Tensor:
        return te.extern(x.shape, [x], lambda i, o: program(i[0], o[0]), "halvings", dtype="int32")

    x = np.arange(1, 1001, dtype="int32")
    param = relax.Var("x", relax.TensorType(x.shape, "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [param]):
        with builder.dataflow():
            out = builder.emit_output(builder.call_te(halvings, param))
        builder.emit_func_output(out)
    lowered = lower(builder.get(), context)
    (func,) = kernels(lowered).values()
    assert str(func.attrs["collage.schedule"]).startswith("independent")
    assert np.prod([int(loop.extent) for loop in _bound(func)]) >= x.size
    (found,) = HostProgram(lowered, cuda_target(), tmp_path)(x)
    np.testing.assert_array_equal(found, np.log2(x).astype("int32"))


def _bound(func: tirx.PrimFunc) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(
        func.body,
        [(tirx.For, lambda loop: found.append(loop) if loop.thread_binding is not None else None)],
    )
    return found
