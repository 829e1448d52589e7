"""Matrices that are looked up for each row."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.cost.reference import evaluate
from collage.normalize import normalize
from tests.collage_tests.normalize.oracle import call_of, normal, operators

R = relax.op


def looked_up(rows: int, count: int, *, first: bool, uses: int = 1) -> tvm.IRModule:
    """``rows`` products with ``count`` matrices: from the left, or from the right."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 6, 1) if first else (rows, 1, 6), "float32"))
    index = relax.Var("index", relax.TensorType((rows,), "int64"))
    weights = normal(count, 5, 6) if first else normal(count, 6, 5)
    with builder.function("main", params=[x, index]):
        with builder.dataflow():
            matrices = builder.emit(R.take(weights, index, axis=0))
            product = builder.emit(R.matmul(*((matrices, x) if first else (x, matrices))))
            results = [product, *[matrices] * (uses - 1)]
            output = builder.emit_output(relax.Tuple(results) if uses > 1 else product)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("first", [True, False])
def test_all_products_are_one(first: bool) -> None:
    mod = looked_up(12, 4, first=first)
    random = np.random.default_rng(0)
    x = random.standard_normal((12, 6, 1) if first else (12, 1, 6)).astype("float32")
    # The last two are outside.
    index = np.array([*random.integers(0, 4, 10), -3, 9])
    after = normalize(mod)
    assert operators(after).count("matmul") == 1
    assert tuple(call_of(after, "matmul").ty.shape.values) == (12, 20)
    assert tuple(call_of(after, "take").args[0].ty.shape.values) == (48, 5)
    (wanted,) = evaluate(mod, [x, np.clip(index, 0, 3)])
    (got,) = evaluate(after, [x, index])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "count", "uses"),
    [(7, 4, 1), (64, 17, 1), (12, 4, 2)],
    ids=["few rows", "many", "kept"],
)
def test_others_are_looked_up(rows: int, count: int, uses: int) -> None:
    after = normalize(looked_up(rows, count, first=True, uses=uses))
    assert operators(after)[:2] == ["take", "matmul"]
