"""TVM's CUDA kernels compute what they should: their own source, run under a model of threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op
from tvm.script.ir_builder import tirx as T

from benchmarks.gpu.cases import CudaCase
from benchmarks.gpu.cases.compiling import cuda_target, partition_case
from benchmarks.gpu.cases.float64 import widened
from benchmarks.gpu.cases.tvm import conv, operators, recurrent
from benchmarks.gpu.cases.tvm.cases import cases
from benchmarks.gpu.cases.worker import largest_error
from collage.backends.contract import BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.relax.launch import kernel
from collage.backends.relax.modules.cuda_graph import copy_inputs
from collage.backends.relax.recurrent import Recurrence
from collage.backends.relax.recurrent.blocking import parts
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.cuda.recurrent import legalize_recurrent
from collage.backends.tvm.cuda.recurrent.cut import Cut, cut_of
from collage.backends.tvm.cuda.recurrent.kernels import Kernels, _Block, _wait
from collage.backends.tvm.cuda.recurrent.states import States
from collage.testing import graph
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

pytestmark = pytest.mark.cuda

_FLOAT32 = ("dense_dense", "dense_odd", "dense_row", "batched", "softmax", "conv_3x3", "conv_stem")
"""In float32 only products and rows go another way than in float16."""


_OPERATORS = (
    *("matmul_row-float16", "layer_norm-bfloat16", "scatter_nd-float16"),
    *("sum_of_all-float16", "argmax_columns-float16"),
    *("scatter_nd_added-float16", "scatter_elements_put-float16", "in_order-float16"),
)


def _chosen() -> list[CudaCase]:
    found = []
    for case in cases():
        name, dtype = case.name.rsplit("-", 1)
        if dtype == "float16" or (dtype == "float32" and name in _FLOAT32):
            found.append(case)
    return [*found, *(case for case in conv.cases() if case.name.endswith("-float16"))]


def _operators() -> list[Any]:
    """Long sums of positive values: two of them, the others when there is time.

    TVM's scans are left out: their grids depend on symbols, which the model of threads has not.
    """
    found = []
    for case in operators.cases():
        marks = [] if case.name in _OPERATORS else [pytest.mark.slow]
        if not case.name.startswith("cum"):
            found.append(pytest.param(case, marks=marks, id=f"operator-{case.name}"))
    return found


_PLAIN = [pytest.param(case, id=case.name) for case in _chosen()]


@pytest.mark.parametrize("case", [*_PLAIN, *_operators()])
def test_kernels_agree_with_the_reference(
    case: CudaCase, tmp_path: Path, context: BuildContext
) -> None:
    random = np.random.default_rng()
    inputs = []
    for param in case.module["main"].params:
        shape, dtype = static_shape(param), str(param.ty.dtype)
        indices = random.integers(0, 100, shape)
        values = random.standard_normal(shape, np.float32)
        inputs.append((indices if "int" in dtype else values).astype(dtype))
    _check(case, inputs, tmp_path, context)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=[] if case.name in recurrent.SAMPLE else [pytest.mark.slow],
            id=case.name,
        )
        for case in recurrent.cases()
    ],
)
def test_recurrent_layers_in_one_kernel(
    case: CudaCase, tmp_path: Path, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large ones, too: kernels that a loop on the host starts again and again are beyond the
    model of threads, but what a block computes in each of them is the same."""

    def few_rows(one: Recurrence) -> Cut:
        cut = cut_of(one)
        return cut if cut.whole else replace(cut, rows=min(2, cut.rows))

    monkeypatch.setattr(f"{legalize_recurrent.__module__}.cut_of", few_rows)
    monkeypatch.setattr(f"{legalize_recurrent.__module__}.Kernels", _InOne)
    random = np.random.default_rng()
    inputs = [
        random.standard_normal(static_shape(param), np.float32).astype(str(param.ty.dtype))
        for param in case.module["main"].params
    ]
    _check(case, inputs, tmp_path, context)


def test_sorts_keep_the_order_of_equals_and_put_what_is_no_number_last(
    tmp_path: Path, context: BuildContext
) -> None:
    random = np.random.default_rng(3)
    x = random.integers(-3, 3, (4, 126)).astype("float32")
    x[random.random(x.shape) < 0.1] = np.nan
    x[x == 0] *= random.choice([-1.0, 1.0], (x == 0).sum())
    y = random.integers(np.iinfo("int64").min, np.iinfo("int64").max, (65, 2))

    def sorts(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        best = emit(op.topk(x, 9, 1, "both", True, "int64"))
        found = [emit(relax.TupleGetItem(best, place)) for place in range(2)]
        return relax.Tuple([emit(op.argsort(x, 1, False, "int64")), *found, emit(op.sort(y, 0))])

    mod = graph([x.shape, y.shape], sorts, ["float32", "int64"])
    lowered = lower(mod, context)
    assert any("ranked" in name for name in kernels(lowered))
    places, largest, at, rising = HostProgram(lowered, cuda_target(), tmp_path)(x, y)
    np.testing.assert_array_equal(places, np.argsort(x, axis=1, kind="stable"))
    # The largest first, what is no number before it, and of equals the earlier.
    falling = np.lexsort((np.broadcast_to(np.arange(126), x.shape), -x, ~np.isnan(x)), axis=1)
    np.testing.assert_array_equal(at, falling[:, :9])
    np.testing.assert_array_equal(largest, np.take_along_axis(x, falling[:, :9], 1))
    np.testing.assert_array_equal(rising, np.sort(y, axis=0))


def test_inputs_that_are_copied_together_arrive(tmp_path: Path, context: BuildContext) -> None:
    """Of several types and sizes, each with blocks of its own."""
    shapes = [((300, 3), "float32"), ((7,), "int64"), ((5, 2), "bool"), ((1, 257), "float16")]
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{place}", relax.TensorType(shape, dtype))
        for place, (shape, dtype) in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            wide = [builder.emit(op.astype(x, "float32")) for x in params]
            result = builder.emit_output(relax.Tuple(wide))
        builder.emit_func_output(result)
    mod = copy_inputs(builder.finalize())
    assert "copy_input" in mod.script()
    random = np.random.default_rng(2)
    inputs = [random.integers(0, 2, shape).astype(dtype) for shape, dtype in shapes]
    outputs = HostProgram(lower(mod, context), cuda_target(), tmp_path)(*inputs)
    for output, given in zip(outputs, inputs, strict=True):
        np.testing.assert_array_equal(output, given.astype("float32"))


class _InOne(Kernels):
    """Where a kernel a step is written, the same blocks in one."""

    def _step_by_step(self) -> None:
        one, cut = self._one, self._cut
        with kernel(len(one.backwards) * self._groups, cut.threads) as (block, thread):
            direction, group = self._among(block, self._groups)
            states = States(self._out[-1])
            at = _Block(states, self._partial(), direction, group * cut.rows, thread, 0)
            self._each_of_rows(at, self._begin)
            _wait()
            with T.serial(0, one.steps) as count:
                for index in range(len(parts(one))):
                    with T.serial(0, self._tiles) as tile:
                        self._tile(index, tile, replace(at, count=count))
            self._each_of_rows(at, self._end)


def _check(case: CudaCase, inputs: list[Any], tmp_path: Path, context: BuildContext) -> None:
    partitioned = partition_case(case, cuda_target())
    lowered = get_backend("tvm").lower(partitioned.module, partitioned.targets[0], context)
    outputs = HostProgram(lowered, cuda_target(), tmp_path)(*inputs)
    assert largest_error(outputs, widened(case.module).run(inputs)) <= case.rtol
