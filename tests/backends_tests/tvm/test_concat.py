"""Concatenations along rows, beside NumPy's: in pieces, with what is fused before and behind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

Shapes = list[tuple[int, ...]]

CASES: list[tuple[Shapes, int, str]] = [
    ([(256, 32), (256, 32)], 1, "pieces"),
    ([(3, 5, 31), (3, 5, 7), (3, 5, 2)], -1, "pieces"),
    ([(40,), (9,)], 0, "pieces"),
    ([(20, 1), (20, 1), (20, 2)], 1, "generic"),
    ([(2, 8, 10), (2, 3, 10)], 1, "generic"),
    ([(4, 30)] * 17, 1, "generic"),
]
"""Shapes, axis, and the family that takes it: short rows, and what stands in none, are generic."""


@pytest.mark.parametrize(("shapes", "axis", "family"), CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_concatenations(
    shapes: Shapes, axis: int, family: str, threads: int, context: BuildContext
) -> None:
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        first, *others = args
        joined = emit(op.concat([emit(op.exp(first)), *others], axis=axis))
        return emit(op.nn.relu(joined))

    mod = tvm_cases.partition(body, inputs)
    context = dataclasses.replace(context, num_threads=threads)
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == [family], "one kernel"
    (got,) = tvm_cases.run(mod, inputs, context)
    wanted = np.concatenate([np.exp(inputs[0]), *inputs[1:]], axis)
    np.testing.assert_allclose(got, np.maximum(wanted, 0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int64", "float16", "bool"])
def test_concatenations_of_other_types(dtype: str, context: BuildContext) -> None:
    rng = np.random.default_rng()
    inputs = [rng.integers(0, 9, shape).astype(dtype) for shape in ((6, 11), (6, 21))]
    mod = tvm_cases.partition(lambda emit, x, y: emit(op.concat([x, y], axis=1)), inputs)
    (got,) = tvm_cases.run(mod, inputs, context)
    np.testing.assert_array_equal(got, np.concatenate(inputs, 1))
