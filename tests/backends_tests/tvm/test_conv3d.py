"""Convolutions of volumes on a CPU: slice by slice, through the packed kernel of pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from collage.cost.reference import evaluate
from collage.testing.graphs import graph
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = {
    "strided": ((2, 3, 8, 9, 11), (8, 3, 3, 5, 3), {"strides": [2, 2, 3], "padding": 1}, True),
    "dilated": ((1, 4, 9, 9, 9), (8, 4, 3, 3, 2), {"dilation": [3, 2, 1]}, True),
    "uneven": (
        (1, 5, 4, 6, 7),
        (9, 5, 2, 2, 2),
        {"padding": [0, 1, 1, 1, 0, 1]},
        True,
    ),
    "grouped": ((1, 12, 4, 6, 6), (16, 3, 3, 1, 3), {"padding": [1, 0, 1], "groups": 4}, True),
    "pointwise": ((2, 24, 3, 5, 6), (16, 24, 1, 1, 1), {}, True),
    "along the depth": ((1, 16, 6, 5, 5), (16, 16, 3, 1, 1), {"padding": [1, 0, 0]}, True),
    "long sums": ((1, 48, 3, 4, 4), (8, 48, 3, 3, 3), {"padding": 1}, True),
    "depthwise": ((1, 8, 4, 6, 6), (8, 1, 3, 3, 3), {"padding": 1, "groups": 8}, False),
}
"""Data, weights, attributes, and whether the packed kernel takes it."""


@pytest.mark.parametrize("name", CASES)
def test_convolution_of_volumes(name: str, context: BuildContext) -> None:
    shape, kernel, attrs, packed = CASES[name]
    rng = np.random.default_rng()
    data = rng.standard_normal(shape, dtype=np.float32)
    weights = rng.standard_normal(kernel, dtype=np.float32)
    bias = rng.standard_normal((1, kernel[0], 1, 1, 1), dtype=np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        result = emit(op.nn.conv3d(x, relax.const(weights), **attrs))
        return emit(op.nn.relu(emit(op.add(result, relax.const(bias)))))

    mod = tvm_cases.partition(body, [data])
    families = tvm_cases.families(tvm_cases.kernels(mod, context))
    # Bias and activation are in the same kernel.
    assert families == ["conv2d"] if packed else "conv2d" not in families
    (got,) = tvm_cases.run(mod, [data], context)
    (wanted,) = evaluate(graph([shape], body), [data])
    tvm_cases.assert_close(got, wanted)
