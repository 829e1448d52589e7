"""What regions take by what their operators took in others."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.candidate_costs.additive import AdditiveTimes
from collage.candidate_costs.work import GraphWork
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph

LAYERS = 12
TVM, ONEDNN = resolve_targets(["llvm", "onednn"])


@pytest.fixture(scope="module")
def chain() -> DataflowGraph:
    """Products of different widths, a ReLU after each."""
    widths = [32 * (1 + number % 5) for number in range(LAYERS + 1)]

    def body(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        last: relax.Expr = x
        for width, wider in pairwise(widths):
            weight = relax.const(tvm.runtime.empty((width, wider), "float32"))
            last = emit(op.nn.relu(emit(op.matmul(last, weight))))
        return last

    return DataflowGraph.from_function(graph([(64, widths[0])], body)["main"])


def region(first: int, last: int) -> int:
    """The bindings of some layers."""
    return sum(0b11 << 2 * number for number in range(first, last + 1))


def times(chain: DataflowGraph) -> AdditiveTimes:
    return AdditiveTimes(chain, GraphWork(chain), lambda index: index)


LAYER_SECONDS = [1e-5 * (1 + (7 * number) % 4) for number in range(LAYERS)]
"""Without regard to what they compute: no roofline knows that."""


def took(first: int, last: int) -> float:
    return 2e-6 + sum(LAYER_SECONDS[first : last + 1])


def test_regions_take_what_their_layers_took_elsewhere(chain: DataflowGraph) -> None:
    learned, chance = times(chain), random.Random(0)
    pairs = [(a, b) for a in range(LAYERS) for b in range(a, LAYERS)]
    known = chance.sample(pairs, 30)
    for pair in known:
        learned.note(TVM, region(*pair), took(*pair) * chance.uniform(0.99, 1.01))
    shares = {}
    for first, last in set(pairs) - set(known):
        bound_sec = learned.least_sec(TVM, region(first, last))
        assert bound_sec is not None
        shares[first, last] = bound_sec / took(first, last)
    assert sum(share < 1.0 for share in shares.values()) > 0.8 * len(shares)
    long = [share for (first, last), share in shares.items() if last - first > 2]
    assert min(long) > 0.8 and max(long) < 1.0


def test_noise_of_what_was_measured_leaves_bounds_lower(chain: DataflowGraph) -> None:
    def bound_sec(noise: float) -> float:
        learned, chance = times(chain), random.Random(1)
        for first in range(LAYERS - 3):
            for last in range(first + 1, first + 4):
                factor = chance.lognormvariate(0.0, noise)
                learned.note(TVM, region(first, last), took(first, last) * factor)
        found = learned.least_sec(TVM, region(1, LAYERS - 2))
        assert found is not None
        return found / took(1, LAYERS - 2)

    assert bound_sec(0.2) < bound_sec(0.01) < 0.96


def test_of_what_nobody_knows_little_is_held_for_impossible(chain: DataflowGraph) -> None:
    learned = times(chain)
    for number in range(8):
        learned.note(TVM, region(number, number), took(number, number))
        learned.note(TVM, region(0, number), took(0, number))
    known, unknown = region(2, 4), region(LAYERS - 1, LAYERS - 1)
    first, other = learned.least_sec(TVM, known), learned.least_sec(TVM, unknown)
    assert first is not None and first > 0.8 * took(2, 4)
    assert other is not None and other < 0.6 * took(LAYERS - 1, LAYERS - 1)


def test_too_few_other_targets_and_light_operators_say_nothing(chain: DataflowGraph) -> None:
    learned = times(chain)
    for number in range(7):
        learned.note(TVM, region(number, number), 1e-5)
    assert learned.least_sec(TVM, region(0, 1)) is None
    learned.note(TVM, region(7, 7), 1e-5)
    assert learned.least_sec(TVM, region(0, 1)) is not None
    assert learned.least_sec(ONEDNN, region(0, 1)) is None
    assert learned.least_sec(TVM, 0b10) is None  # A ReLU.


def test_a_copy_does_not_learn(chain: DataflowGraph) -> None:
    learned = times(chain)
    for number in range(7):
        learned.note(TVM, region(number, number), 1e-5)
    same = learned.copied()
    learned.note(TVM, region(7, 7), 1e-5)
    assert learned.least_sec(TVM, region(0, 1)) is not None
    assert same.least_sec(TVM, region(0, 1)) is None
