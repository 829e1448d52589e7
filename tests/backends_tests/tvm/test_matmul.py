"""Matrix products of the TVM backend against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

CASES = {
    "square": ((64, 64), (64, 64)),
    "odd": ((17, 100), (100, 129)),
    "vector": ((1, 300), (300, 70)),
    "few rows": ((5, 64), (64, 48)),
    "one column": ((33, 20), (20, 1)),
    "one step": ((16, 1), (1, 30)),
    "sequence": ((1, 100, 64), (64, 96)),
    "two sequences": ((2, 17, 64), (64, 31)),
    "page-sized rows": ((20, 1024), (1024, 33)),
    "batched": ((2, 3, 17, 40), (2, 3, 40, 29)),
    "batched exact": ((12, 32, 64), (12, 64, 32)),
    "windows": ((5, 49, 49), (5, 49, 32)),
    "broadcast": ((2, 3, 16, 24), (1, 3, 24, 7)),
    "fewer batch axes": ((2, 3, 16, 24), (3, 24, 16)),
}


def arrays(name: str) -> list[np.ndarray]:
    random = np.random.default_rng()
    return [random.standard_normal(shape, dtype=np.float32) for shape in CASES[name]]


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "variable"])
@pytest.mark.parametrize("name", CASES)
def test_product(name: str, constant: bool, context: BuildContext) -> None:
    a, b = arrays(name)

    def build(emit: Any, left: relax.Var, *right: relax.Var) -> relax.Expr:
        return emit(relax.op.matmul(left, relax.const(b) if constant else right[0]))

    inputs = [a] if constant else [a, b]
    mod = tvm_cases.partition(build, inputs)
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["matmul"]
    (got,) = tvm_cases.run(mod, inputs, context)
    tvm_cases.assert_close(got, np.matmul(a.astype(np.float64), b))


@pytest.mark.parametrize("name", ["odd", "vector", "two sequences", "batched"])
def test_epilogue_is_fused(name: str, context: BuildContext) -> None:
    """Bias, GELU and residual add run inside of the product's own kernel."""
    a, b = arrays(name)
    product = np.matmul(a.astype(np.float64), b)
    random = np.random.default_rng()
    bias = random.standard_normal(product.shape[-1:], dtype=np.float32)
    residual = random.standard_normal(product.shape, dtype=np.float32)

    def build(emit: Any, left: relax.Var, right: relax.Var, other: relax.Var) -> relax.Expr:
        result = emit(relax.op.add(emit(relax.op.matmul(left, right)), relax.const(bias)))
        return emit(relax.op.add(emit(relax.op.nn.gelu(result)), other))

    mod = tvm_cases.partition(build, [a, b, residual])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["matmul"]
    (got,) = tvm_cases.run(mod, [a, b, residual], context)
    biased = product + bias
    gelu = 0.5 * biased * (1 + np.vectorize(math.erf)(biased / math.sqrt(2)))
    tvm_cases.assert_close(got, gelu + residual)


def test_loops_are_parallel_vectorized_and_unrolled(context: BuildContext) -> None:
    weights = np.ones((768, 768), np.float32)
    data = np.ones((128, 768), np.float32)
    mod = tvm_cases.partition(
        lambda emit, x: emit(relax.op.matmul(x, relax.const(weights))), [data]
    )
    (kernel,) = tvm_cases.kernels(mod, context).values()
    kinds = tvm_cases.loop_kinds(kernel)
    assert {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED} <= kinds


def test_integer_products_take_the_plain_way(context: BuildContext) -> None:
    random = np.random.default_rng()
    a, b = (random.integers(-9, 9, (20, 20)).astype(np.int32) for _ in range(2))
    mod = tvm_cases.partition(lambda emit, x, y: emit(relax.op.matmul(x, y)), [a, b])
    (got,) = tvm_cases.run(mod, [a, b], context)
    assert np.array_equal(got, a @ b)


@pytest.mark.parametrize("shape", [(9, 2048, 40), (1, 20000, 32), (17, 4099, 24)], ids=str)
def test_long_sums_are_as_exact_as_short_ones(
    shape: tuple[int, int, int], context: BuildContext
) -> None:
    """Added up one by one, 2,048 products are off by 8e-7 of root mean square."""
    rows, terms, columns = shape
    random = np.random.default_rng()
    a = random.standard_normal((rows, terms), dtype=np.float32)
    b = random.standard_normal((terms, columns), dtype=np.float32)
    mod = tvm_cases.partition(lambda emit, x: emit(relax.op.matmul(x, relax.const(b))), [a])
    assert tvm_cases.families(tvm_cases.kernels(mod, context)) == ["matmul"]
    (got,) = tvm_cases.run(mod, [a], context)
    exact = np.matmul(a.astype(np.float64), b)
    # A prime number of terms has no pieces.
    bound = 5e-7 if terms != 4099 else 2e-6
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < bound
