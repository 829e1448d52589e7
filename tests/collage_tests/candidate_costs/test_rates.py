"""What candidates take by what others took."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.candidate_costs.rates import Rates
from collage.cost import Cost
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph

WIDTHS = tuple(range(64, 640, 64))


@pytest.fixture(scope="module")
def products() -> DataflowGraph:
    """Products of one row with square matrices, a ReLU after each."""

    def body(emit: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        last: relax.Expr = x
        for width, wider in zip(WIDTHS, (*WIDTHS[1:], WIDTHS[0]), strict=True):
            weight = relax.const(tvm.runtime.empty((width, wider), "float32"))
            last = emit(op.nn.relu(emit(op.matmul(last, weight))))
        return last

    return DataflowGraph.from_function(graph([(1, WIDTHS[0])], body)["main"])


def singles(dataflow: DataflowGraph, name: str, target: str = "tvm") -> list[Candidate]:
    found = next(t for t in resolve_targets(["llvm", "onednn"]) if t.name == target)
    return [Candidate(1 << i, found) for i in range(len(dataflow)) if dataflow.op_name(i) == name]


def size(index: int) -> int:
    """Bytes that a ReLU moves: a row in, a row out."""
    return 8 * (*WIDTHS[1:], WIDTHS[0])[index]


def test_others_of_a_kind_take_about_what_is_typical_for_their_size(
    products: DataflowGraph,
) -> None:
    rates = Rates(products, lambda index: index)
    *known, last = singles(products, "nn.relu")
    for index, candidate in enumerate(known[:-1]):
        rates.note(candidate, Cost.of_samples([1e-10 * size(index)]))
    assert rates.likely_sec(last) == 0.0  # Too few to tell.
    # One that was timed at a lucky moment, at a tenth of what the others take for their size.
    rates.note(known[-1], Cost.of_samples([1e-11 * size(len(known) - 1)]))
    assert rates.likely_sec(last) == pytest.approx(0.9e-10 * size(len(known)))


def test_other_kinds_and_other_targets_say_nothing(products: DataflowGraph) -> None:
    rates = Rates(products, lambda index: index)
    for candidate in singles(products, "matmul"):
        rates.note(candidate, Cost.of_samples([1e-5]))
    for candidate in singles(products, "nn.relu", "onednn"):
        rates.note(candidate, Cost.of_samples([1e-5]))
    (relu, *_), (elsewhere, *_) = (
        singles(products, "nn.relu"),
        singles(products, "matmul", "onednn"),
    )
    assert rates.likely_sec(relu) == 0.0 and rates.likely_sec(elsewhere) == 0.0
    assert rates.likely_sec(singles(products, "matmul")[0]) > 0.0


def test_work_that_does_nothing_says_nothing_of_what_does() -> None:
    """Products with rows of which there are none compute nothing."""

    def body(emit: relax.BlockBuilder, x: relax.Var, *others: relax.Var) -> relax.Expr:
        total = relax.const(0.0, "float32")
        for other in others[:-1]:
            weights = relax.const(np.ones((int(other.ty.shape[1]), 4), "float32"))
            total = emit(op.add(total, emit(op.sum(emit(op.matmul(other, weights))))))
        return op.add(emit(op.matmul(x, others[-1])), total)

    empty = [(0, width) for width in range(1, 10)]
    dataflow = DataflowGraph.from_function(graph([(4, 8), *empty, (8, 4)], body)["main"])
    rates = Rates(dataflow, lambda index: index)
    full, *others = singles(dataflow, "matmul")
    for candidate in others:
        rates.note(candidate, Cost.of_samples([1e-6]))
    assert len(others) == 9 and 0.0 < rates.likely_sec(full) < 1e-4  # By its bytes alone.


def test_what_is_saved_does_not_learn(products: DataflowGraph) -> None:
    rates = Rates(products, lambda index: index)
    first, *others = singles(products, "matmul")
    saved = rates.saved()
    for candidate in (first, *others):
        rates.note(candidate, Cost.of_samples([1e-5]))
    assert rates.likely_sec(first) > 0.0 and rates.best_flops_per_sec > 0.0
    assert saved.likely_sec(first) == 0.0 and saved.best_flops_per_sec == 0.0


def test_no_kernel_is_held_to_do_more_products_than_tiles_do() -> None:
    """Of Winograd's algorithm three by three taps ask for a quarter of the products; larger steps
    and other taps for all that are not with padding."""
    shapes = {"tiles": (3, 1), "steps": (3, 2), "taps": (1, 1)}

    def body(emit: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        made = []
        for taps, step in shapes.values():
            weights = relax.const(tvm.runtime.empty((64, 64, taps, taps), "float32"))
            made.append(emit(op.nn.conv2d(x, weights, strides=step, padding=taps // 2)))
        return relax.Tuple(made)

    dataflow = DataflowGraph.from_function(graph([(1, 64, 16, 16)], body)["main"])
    tiles, steps, taps = singles(dataflow, "nn.conv2d")
    rates = Rates(dataflow, lambda index: index)
    products = 2 * 64 * 64 * 16 * 16
    rates.note(taps, Cost.of_samples([products / 1e11]))
    assert rates.best_flops_per_sec == pytest.approx(1e11)
    assert rates.least_sec(taps) == pytest.approx(products / 1.25e11)
    assert rates.least_sec(tiles) == pytest.approx(9 * products / 4 / 1.25e11)
    # The first tap of each axis sees the padding once.
    padding = (23 / 24) ** 2
    assert rates.least_sec(steps) == pytest.approx(padding * 9 * products / 4 / 1.25e11)
    # 2.2 times as fast as the best product: as tiles are, and still no rate of products.
    rates.note(tiles, Cost.of_samples([9 * products / 2.2e11]))
    assert rates.best_flops_per_sec == pytest.approx(1e11)
