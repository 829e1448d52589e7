"""What is looked up is fused with what makes its indices and with what follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate
from tests.backends_tests.cuda_on_host import HostProgram
from tests.backends_tests.tvm.cuda.lowered import kernels, lower

R = relax.op


def tables(rows: int) -> tvm.IRModule:
    """Two tables, one of them at indices that are computed; their rows scaled, side by side."""
    random, builder = np.random.default_rng(0), relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((rows,), "int64"))
    left, right = (relax.const(random.standard_normal((9, 32), np.float32)) for _ in range(2))
    with builder.function("main", params=[ids]):
        with builder.dataflow():
            a = builder.emit(R.take(left, ids, axis=0))
            after = builder.emit(R.add(ids, relax.const(1, "int64")))
            moved = builder.emit(R.minimum(after, relax.const(8, "int64")))
            b = builder.emit(R.take(right, moved, axis=0))
            b = builder.emit(R.multiply(b, relax.const(2.0)))
            output = builder.emit_output(R.concat([a, b], 1))
        builder.emit_func_output(output)
    return builder.get()


def test_tables_side_by_side_are_one_kernel(context: BuildContext, tmp_path: Path) -> None:
    mod = tables(5)
    lowered = lower(mod, context)
    assert len(kernels(lowered)) == 1
    ids = np.array([0, 8, 3, 3, 7])
    (wanted,) = evaluate(mod, [ids])
    (got,) = HostProgram(lowered, cuda_target(), tmp_path)(ids)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_large_results_are_looked_up_apart_from_what_moves_them(context: BuildContext) -> None:
    assert len(kernels(lower(tables(1 << 14), context))) > 1
