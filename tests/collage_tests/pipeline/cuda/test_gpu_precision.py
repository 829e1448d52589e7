"""TF32 searched within an error, on a real GPU.

``pytest -m gpu tests/collage_tests/pipeline/cuda/test_gpu_precision.py``
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.reference import evaluate, largest_error
from collage.testing.graphs import Emit, constant, graph

needs_gpu = pytest.mark.skipif(not has_device(), reason="there is no CUDA device")


@pytest.mark.gpu
@needs_gpu
def test_tf32_keeps_to_the_error_that_is_allowed(tmp_path: Path) -> None:
    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(emit(op.matmul(x, constant(2048, 2048, scale=1 / 45)))))
        return op.nn.relu(emit(op.matmul(y, constant(2048, 2048, scale=1 / 45))))

    mod, random = graph([(4096, 2048)], body), np.random.default_rng()
    result = collage.optimize(mod, ["cuda", "cublas"], max_error=5e-3)
    rows = {row.name: row for row in result.report.end_to_end}
    fewer = rows["single:cublas_tf32"].largest_error
    assert fewer is not None
    assert 1e-6 < fewer < 5e-3
    x = random.standard_normal((4096, 2048)).astype(np.float32)
    (expected,) = evaluate(mod, [x])
    got = np.asarray(collage.load(result.export(tmp_path / "bundle"))(x))
    assert largest_error(got, expected) < 5e-3
    # Matrix units multiply such numbers several times as fast.
    assert {c.backend for c in result.partitioning.candidates} == {"cublas_tf32"}
