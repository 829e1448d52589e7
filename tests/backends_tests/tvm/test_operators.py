"""TVM computes every operator that an importer can bring, and computes it right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx

from benchmarks.gpu.cases.compiling import cuda_target
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend
from collage.backends.tvm.cuda.schedules import SCHEDULE_ATTR
from collage.backends.tvm.cuda.schedules._base import unbound_stores
from collage.cost.reference import evaluate
from collage.normalize import normalize
from tests.backends_tests.tvm import cases as tvm_cases
from tests.backends_tests.tvm.operators import Operator, operators

_SAMPLE = frozenset(
    {
        *("astype-int64", "atan2", "cumsum-last", "dequantize-uint8", "dequantize-int8"),
        *("image.grid_sample-bilinear", "matmul-vectors", "nn.batch_norm", "nn.conv3d_transpose-4"),
        *(
            "scatter_elements-add",
            "sort",
            "split-concat",
            "topk",
            "where",
            "image.resize2d-linear-7",
        ),
    }
)
_TOLERANCE = {"float32": 1e-4, "float16": 4e-3}

_NOT_ON_A_GPU = frozenset({"median-last"})
"""TVM's kernel calls a sort of the host."""


def _params(*, without: frozenset[str] = frozenset()) -> list[object]:
    return [
        pytest.param(o, id=o.name, marks=[] if o.name in _SAMPLE else [pytest.mark.slow])
        for o in operators()
        if o.name not in without
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operator", _params())
def test_a_processor_computes_it(operator: Operator, dtype: str, context: BuildContext) -> None:
    mod = operator.module(dtype)
    inputs = operator.arrays(dtype, np.random.default_rng())
    results = tvm_cases.run(normalize(mod), inputs, context)
    for got, wanted in zip(results, evaluate(mod, inputs), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, wanted)
        else:
            wide, reference = got.astype(np.float64), wanted.astype(np.float64)
            tvm_cases.assert_close(wide, reference, _TOLERANCE[dtype])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", _params(without=_NOT_ON_A_GPU))
def test_a_gpu_has_a_kernel_for_it(operator: Operator, dtype: str, context: BuildContext) -> None:
    """Down to CUDA source; compiling that takes seconds for each."""
    try:
        mod = normalize(operator.module(dtype))
    except (TypeError, tvm.error.InternalError) as err:
        pytest.skip(f"Relax has no such operator in {dtype}: {err}")
    target = BackendTarget.of("tvm", cuda_target())
    lowered = get_backend("tvm").lower(mod, target, context)
    with target.device:
        tvm.compile(lowered, target=target.device)


@pytest.mark.cuda
def test_loops_written_out_for_a_processor_run_in_one_thread(context: BuildContext) -> None:
    (operator,) = (o for o in operators() if o.name == "index_put-True")
    target = BackendTarget.of("tvm", cuda_target())
    lowered = get_backend("tvm").lower(operator.module("float32"), target, context)
    (func,) = (f for f in lowered.functions.values() if isinstance(f, tirx.PrimFunc))
    assert str(func.attrs[SCHEDULE_ATTR]).startswith("one_thread")
    assert unbound_stores(func) == []
    assert tvm_cases.loop_kinds(func) == {tirx.ForKind.SERIAL, tirx.ForKind.THREAD_BINDING}
