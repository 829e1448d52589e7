"""Convolutions along one axis of a CPU: as images of one row, through the packed kernel."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

CASES = {
    "plain": ((2, 24, 61), (40, 24, 3), {"padding": 1}, True),
    "pointwise": ((1, 32, 50), (48, 32, 1), {}, True),
    "dilated": ((1, 16, 200), (16, 16, 7), {"padding": [12, 9], "dilation": 4}, True),
    "strided": ((3, 1, 160), (64, 1, 10), {"strides": 5}, True),
    "grouped": ((1, 32, 45), (64, 8, 5), {"padding": 2, "groups": 4}, True),
    "depthwise": ((1, 32, 45), (32, 1, 5), {"padding": 2, "groups": 32}, False),
}
"""Data, weights, attributes, and whether it becomes an image."""


@pytest.mark.parametrize("name", CASES)
def test_convolution_along_one_axis(name: str, context: BuildContext) -> None:
    shape, kernel, attrs, as_image = CASES[name]
    rng = np.random.default_rng()
    data = rng.standard_normal(shape, dtype=np.float32)
    weights = rng.standard_normal(kernel, dtype=np.float32)
    bias = rng.standard_normal((1, kernel[0], 1), dtype=np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        result = emit(op.nn.conv1d(x, relax.const(weights), **attrs))
        return emit(op.nn.relu(emit(op.add(result, relax.const(bias)))))

    mod = tvm_cases.partition(body, [data])
    families = tvm_cases.families(tvm_cases.kernels(mod, context))
    assert ("conv2d" in families) == as_image
    (got,) = tvm_cases.run(mod, [data], context)
    whole = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with whole.function("main", [x]):
        with whole.dataflow():
            result = whole.emit_output(body(whole.emit, x))
        whole.emit_func_output(result)
    (wanted,) = evaluate(whole.get(), [data])
    tvm_cases.assert_close(got, wanted)
