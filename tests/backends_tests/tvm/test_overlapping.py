"""Rows that are no multiple of a vector: the last one begins where it still ends inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from collage.backends.contract import BuildContext
from tests.backends_tests.tvm import cases as tvm_cases

op = relax.op
_LENGTHS = (3, 5, 13, 16, 17, 31, 33, 50, 197, 1001, 2049)
_TOLERANCE = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def _softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def _normal(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _layer_norm(x: relax.Expr) -> relax.Expr:
    length, kind = int(x.ty.shape[-1]), str(x.ty.dtype)
    ones, zeros = (relax.const(make(length), kind) for make in (np.ones, np.zeros))
    return op.nn.layer_norm(x, ones, zeros, [-1], epsilon=1e-5)


CHAINS: dict[str, tuple[Callable[..., relax.Expr], Callable[..., np.ndarray]]] = {
    "softmax": (lambda x: op.nn.softmax(x, -1), _softmax),
    "log_softmax": (lambda x: op.nn.log_softmax(x, -1), lambda x: np.log(_softmax(x))),
    "layer_norm": (_layer_norm, _normal),
    "relu": (op.nn.relu, lambda x: np.maximum(x, 0)),
    "sum": (lambda x: op.sum(x, [-1]), lambda x: x.sum(-1)),
    "min": (lambda x: op.min(x, [-1]), lambda x: x.min(-1)),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("chain", CHAINS)
def test_rows_of_any_length(chain: str, dtype: str, threads: int, context: BuildContext) -> None:
    ours, reference = CHAINS[chain]
    rng = np.random.default_rng()
    kind = getattr(ml_dtypes, dtype, dtype)
    inputs = [(rng.standard_normal((7, n)) + 2).astype(kind) for n in _LENGTHS]

    def body(emit: tvm_cases.Body, *args: relax.Expr) -> relax.Expr:
        return emit(relax.Tuple([emit(ours(x)) for x in args]))

    mod = tvm_cases.partition(body, inputs)
    results = tvm_cases.run(mod, inputs, dataclasses.replace(context, num_threads=threads))
    for got, x in zip(results, inputs, strict=True):
        wanted = reference(x.astype(np.float64))
        tvm_cases.assert_close(got.astype(np.float64), wanted, _TOLERANCE[dtype])


def test_what_is_computed_twice_is_not_put_where_its_operand_was(context: BuildContext) -> None:
    """TVM shares the memory of what a kernel keeps: roots of five numbers were roots of roots."""
    rng = np.random.default_rng()
    x = rng.uniform(1, 2, (3, 5, 9)).astype(np.float32)

    def body(emit: tvm_cases.Body, x: relax.Expr) -> relax.Expr:
        scale = emit(op.rsqrt(emit(op.sum(emit(op.multiply(x, x)), [2], keepdims=True))))
        return emit(op.multiply(x, scale))

    mod = tvm_cases.partition(body, [x])
    (got,) = tvm_cases.run(mod, [x], context)
    wide = x.astype(np.float64)
    tvm_cases.assert_close(got, wide / np.sqrt((wide**2).sum(2, keepdims=True)), 1e-6)


@pytest.mark.parametrize("shape", [(197, 333), (1, 3, 37, 41), (2, 14, 14), (5, 7)])
def test_elementwise_with_operands_of_rows(shape: tuple[int, ...], context: BuildContext) -> None:
    rng = np.random.default_rng()
    x, y = (rng.standard_normal(s, dtype=np.float32) for s in (shape, shape[-1:]))

    def body(emit: tvm_cases.Body, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return emit(op.nn.relu(emit(op.add(emit(op.exp(x)), y))))

    mod = tvm_cases.partition(body, [x, y])
    (got,) = tvm_cases.run(mod, [x, y], context)
    wanted = np.maximum(np.exp(x.astype(np.float64)) + y, 0)
    tvm_cases.assert_close(got, wanted, 1e-6)
