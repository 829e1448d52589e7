"""Convolutions along one axis of a CPU: as images through the packed kernel, or by channels."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

CASES = {
    "plain": ((2, 24, 61), (40, 24, 3), {"padding": 1}, "conv2d"),
    "pointwise": ((1, 32, 50), (48, 32, 1), {}, "conv2d"),
    "pointwise, many rows": ((2, 7, 480), (30, 7, 1), {}, "conv2d"),
    "pointwise, strided": ((1, 16, 51), (24, 16, 1), {"strides": 2}, "conv2d"),
    "dilated": ((1, 16, 200), (16, 16, 7), {"padding": [12, 9], "dilation": 4}, "conv2d"),
    "strided": ((3, 1, 160), (64, 1, 10), {"strides": 5}, "conv2d"),
    "grouped": ((1, 32, 45), (64, 8, 5), {"padding": 2, "groups": 4}, "conv2d"),
    "depthwise": ((1, 32, 45), (32, 1, 5), {"padding": 2, "groups": 32}, "depthwise"),
    "depthwise, long": (
        *((2, 16, 70), (16, 1, 33)),
        *({"padding": [31, 33], "dilation": 2, "groups": 16}, "depthwise"),
    ),
    "depthwise, causal": ((1, 48, 64), (48, 1, 4), {"padding": [3, 0], "groups": 48}, "depthwise"),
    "depthwise, strided": (
        *((1, 8, 99), (16, 1, 31)),
        *({"padding": 15, "strides": 2, "groups": 8}, "depthwise"),
    ),
    "depthwise, pointwise": ((1, 32, 64), (32, 1, 1), {"groups": 32}, "depthwise"),
}
"""Data, weights, attributes, and the family that takes it."""


@pytest.mark.parametrize("name", CASES)
def test_convolution_along_one_axis(name: str, context: BuildContext) -> None:
    shape, kernel, attrs, family = CASES[name]
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
    assert families == [family]
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
