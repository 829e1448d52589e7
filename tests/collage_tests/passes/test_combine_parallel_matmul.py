"""Joined dense layers: the same outputs from fewer products."""

from __future__ import annotations

import numpy as np
from tvm import relax

from benchmarks.networks.models import random_inputs
from benchmarks.networks.tiny import tiny_bert
from collage.cost.reference import evaluate, largest_error
from collage.importers import load_model
from collage.normalize import normalize
from collage.passes.combine_parallel_matmul import combine_parallel_matmul
from tests.collage_tests.passes.networks import (
    LIGHT_ERROR,
    Emit,
    build,
    operators,
    weights,
)

op = relax.op


def test_projections_of_one_input_become_one() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        q = emit(op.add(emit(op.matmul(x, weights(16, 16, seed=1))), weights(16, seed=2)))
        scaled = emit(op.multiply(q, relax.const(2.0, "float32")))
        k = emit(op.add(emit(op.matmul(x, weights(16, 24, seed=3))), weights(24, seed=4)))
        v = emit(op.add(emit(op.matmul(x, weights(16, 8, seed=5))), weights(8, seed=6)))
        plain = emit(op.matmul(x, weights(16, 4, seed=7)))
        return relax.Tuple([scaled, k, v, plain])

    mod = build(body, (2, 5, 16))
    joined = combine_parallel_matmul(mod)
    assert operators(joined)["matmul"] == 2  # the one without a bias stands alone
    assert operators(joined)["split"] == 1
    value = np.random.default_rng().standard_normal((2, 5, 16), np.float32)
    for got, wanted in zip(evaluate(joined, [value]), evaluate(mod, [value]), strict=True):
        assert largest_error(got, wanted) <= LIGHT_ERROR


def test_bert_has_one_projection_per_layer() -> None:
    model = tiny_bert()
    imported = load_model(model)
    mod = normalize(imported.mod)
    joined = combine_parallel_matmul(mod)
    assert operators(joined)["matmul"] == operators(mod)["matmul"] - 2 * operators(joined)["split"]
    assert operators(joined)["split"] > 0
    feeds = random_inputs(model, 9, vocabulary=32)
    inputs = [feeds[spec.name] for spec in imported.inputs]
    for got, wanted in zip(evaluate(joined, inputs), evaluate(mod, inputs), strict=True):
        assert largest_error(got, wanted) <= LIGHT_ERROR


def test_nothing_to_join_changes_nothing() -> None:
    mod = build(lambda emit, x: op.matmul(x, weights(16, 4)), (3, 16))
    assert combine_parallel_matmul(mod) is mod
