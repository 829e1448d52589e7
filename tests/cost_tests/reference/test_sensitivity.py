"""What fewer digits of one product do: against whole evaluations with just that product rounded."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.deadline import Deadline
from collage.cost.reference import distance, evaluate
from collage.cost.reference.rounding import rounded
from collage.cost.reference.sensitivity import in_form, is_product, sensitivities
from collage.testing.graphs import Emit, graph

WIDTH, DEPTH = 24, 4


def _weights() -> list[np.ndarray]:
    random = np.random.default_rng()
    shape = (DEPTH, WIDTH, WIDTH)
    return list((random.standard_normal(shape) / WIDTH**0.5).astype(np.float32))


def _network(weights: list[np.ndarray]) -> tvm.IRModule:
    """Products with a shortcut around each, and two results."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        first = x
        for array in weights:
            x = emit(op.add(x, emit(op.tanh(emit(op.matmul(x, relax.const(array)))))))
        return relax.Tuple([x, emit(op.add(first, x))])

    return graph([(5, WIDTH)], body)


def _by_hand(weights: list[np.ndarray], x: np.ndarray, which: int) -> list[np.ndarray]:
    first = x
    for index, array in enumerate(weights):
        a, b = x, array
        if index == which:
            a, b = rounded(a, "bfloat16"), rounded(b, "bfloat16")
        x = x + np.tanh(a @ b)
    return [x, first + x]


def test_each_product_is_rounded_alone() -> None:
    weights = _weights()
    mod = _network(weights)
    x = np.random.default_rng().standard_normal((5, WIDTH)).astype(np.float32)
    expected = evaluate(mod, [x])
    found = sensitivities(mod, [x], in_form("bfloat16"))
    products = [b.var for b in mod["main"].body.blocks[0].bindings if is_product(b.value)]
    assert list(found) == products and len(products) == DEPTH
    for which, var in enumerate(products):
        pairs = zip(_by_hand(weights, x, which), expected, strict=True)
        by_hand = max(distance(one, wanted).largest for one, wanted in pairs)
        assert found[var] == pytest.approx(by_hand, rel=0.02)


def test_without_time_everything_is_infinitely_bad() -> None:
    mod = _network(_weights())
    found = sensitivities(
        mod, [np.ones((5, WIDTH), np.float32)], in_form("bfloat16"), Deadline.after(0)
    )
    assert set(found.values()) == {float("inf")}


def test_half_precision_is_left_as_it_is() -> None:
    mod = graph(
        [(4, 8)],
        lambda emit, x: op.matmul(x, relax.const(np.ones((8, 8), np.float16))),
        dtype="float16",
    )
    # Its values are float32 on the way, and exact in float16: not in bfloat16.
    x = np.full((4, 8), 1.0 + 2.0**-9, np.float16)
    assert set(sensitivities(mod, [x], in_form("bfloat16")).values()) == {0.0}
