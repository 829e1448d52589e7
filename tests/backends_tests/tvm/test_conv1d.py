"""Convolutions along one axis of a CPU: as images, through the packed kernel."""

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
    "pointwise, many rows": ((2, 7, 480), (30, 7, 1), {}, True),
    "pointwise, strided": ((1, 16, 51), (24, 16, 1), {"strides": 2}, True),
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
    # Bias and activation are in the same kernel.
    assert families == ["conv2d"] if as_image else "conv2d" not in families
    (got,) = tvm_cases.run(mod, [data], context)
    whole = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with whole.function("main", [x]):
        with whole.dataflow():
            result = whole.emit_output(body(whole.emit, x))
        whole.emit_func_output(result)
    (wanted,) = evaluate(whole.get(), [data])
    tvm_cases.assert_close(got, wanted)


def test_variable_weights(context: BuildContext) -> None:
    rng = np.random.default_rng()
    data = rng.standard_normal((1, 12, 70), dtype=np.float32)
    weights = rng.standard_normal((20, 12, 3), dtype=np.float32)
    mod = tvm_cases.partition(
        lambda emit, x, w: emit(op.nn.conv1d(x, w, padding=1)), [data, weights]
    )
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["conv2d"]
    (got,) = tvm_cases.run(mod, [data, weights], context)
    padded = np.pad(data[0].astype(np.float64), ((0, 0), (1, 1)))
    wanted = sum(weights[:, :, k].astype(np.float64) @ padded[:, k : k + 70] for k in range(3))
    tvm_cases.assert_close(got, np.asarray(wanted)[None])
