"""Every case of every pattern: the network means what Relax means, and TensorRT builds it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.cases import case_names, case_of
from benchmarks.gpu.cases.float64 import widen, widened
from benchmarks.gpu.cases.worker import make_inputs
from tests.backends_tests.tensorrt import support

pytestmark = pytest.mark.cuda
pytest.importorskip("tensorrt_rtx", reason="engines without a GPU need TensorRT for RTX")

_NAMES = case_names("tensorrt")


@pytest.mark.parametrize("name", _NAMES)
def test_network_means_what_relax_means(name: str) -> None:
    case = case_of("tensorrt", name)
    wanted = support.target(**case.options)
    partitioned = support.partition(case.module, wanted)
    assert len(partitioned.functions) == 1 and not partitioned.native_names, "not taken whole"
    inputs = make_inputs(case, seed=3)
    # TensorRT's bindings give no access to weights in bfloat16: those networks are only built.
    readable = "bfloat16" not in name and not case.options.get("use_bf16")
    given = partitioned.region_inputs(inputs) if readable else ()
    seen = support.write(partitioned.functions[0], wanted, given)
    assert len(seen.plan) > 1000
    if not readable:
        return
    expected = widened(case.module).run(inputs)
    half = "float16" in name or case.options.get("use_fp16")
    assert len(seen.outputs) == len(expected)
    for got, reference in zip(seen.outputs, expected, strict=True):
        assert got.shape == reference.shape
        if reference.dtype.kind in "biu":
            assert np.array_equal(got, reference)
            continue
        error = np.abs(got - widen(reference)).max() / np.abs(widen(reference)).max()
        # Only weights and numbers are rounded to half precision here.
        assert error < (1e-3 if half else 1e-5)
