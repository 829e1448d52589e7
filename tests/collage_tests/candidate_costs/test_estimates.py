"""Guesses of what was not measured: careful, and learnt from what was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from collage.backends.contract import BackendTarget
from collage.candidate_costs import WorkloadCosts
from collage.candidate_costs.estimates import Estimates, importance
from collage.cost.base import Cost, CostStatus
from collage.cost.models import RooflineCostModel
from collage.cost.workload.workload import Workload
from collage.end_to_end.baselines import without_search
from collage.pipeline import import_model
from collage.targets import resolve_targets
from collage.testing import graph

TVM, ONEDNN, OPENBLAS = resolve_targets(["llvm", "onednn", "openblas"])


def _product(rows: int, width: int = 64) -> Workload:
    return Workload.from_module(
        graph([(rows, width), (width, width)], lambda emit, x, y: op.matmul(x, y))
    )


def _pointwise(size: int) -> Workload:
    return Workload.from_module(graph([(size,)], lambda emit, x: op.exp(x)))


PRODUCTS = [_product(rows) for rows in (16, 32, 64, 128, 256, 512)]
LARGE = _product(1024)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.2, 5.0), min_size=3, max_size=6), st.floats(1e-9, 1e-3))
def test_a_guess_is_not_below_what_most_of_its_kind_took(
    ratios: list[float], scale_sec: float
) -> None:
    """Relative to the roofline, whatever the device's speed: that is what makes it careful."""
    estimates = Estimates()
    rates = []
    for workload, ratio in zip(PRODUCTS, ratios, strict=False):
        seconds = scale_sec * ratio * workload.flops
        estimates.note(workload, ONEDNN, Cost.of_samples([seconds]))
        rates.append(seconds / estimates._roofline(workload, ONEDNN))
    guess = estimates.seconds(LARGE, ONEDNN) / estimates._roofline(LARGE, ONEDNN)
    assert sorted(rates)[len(rates) // 2] < guess <= 1.2 * max(rates) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("seen", "target", "better"),
    [(PRODUCTS, ONEDNN, True), (PRODUCTS, OPENBLAS, False)],
)
def test_the_nearest_experience_counts(
    seen: list[Workload], target: BackendTarget, better: bool
) -> None:
    """Of a backend that was seen to be fast, and of one that was seen to be slow."""
    estimates = Estimates()
    for workload in seen:
        estimates.note(workload, ONEDNN, Cost.of_samples([1e-12 * workload.flops]))
        estimates.note(workload, OPENBLAS, Cost.of_samples([1e-8 * workload.flops]))
    assert (estimates.seconds(LARGE, target) < 1e-10 * LARGE.flops) is better
    # Of TVM nothing was seen: the worst of all that was.
    assert estimates.seconds(LARGE, TVM) > 1e-8 * LARGE.flops


def test_what_failed_teaches_nothing() -> None:
    estimates = Estimates()
    before = estimates.seconds(LARGE, TVM)
    for workload in PRODUCTS:
        estimates.note(workload, TVM, Cost(CostStatus.CRASHED))
    assert estimates.seconds(LARGE, TVM) == before


def test_blind_guesses_prefer_libraries_for_products_only() -> None:
    estimates = Estimates()
    assert estimates.seconds(LARGE, ONEDNN) < estimates.seconds(LARGE, TVM)
    one = _pointwise(1 << 20)
    assert estimates.seconds(one, ONEDNN) == pytest.approx(estimates.seconds(one, TVM), rel=0.01)


def test_importance_follows_arithmetic_and_traffic() -> None:
    assert importance(LARGE) > importance(PRODUCTS[0])
    assert importance(_pointwise(1 << 22)) > importance(_pointwise(1 << 10))


def _gated_steps(steps: int, width: int = 16) -> tvm.IRModule:
    """A recurrent network unrolled: one small product a step, and ten small operators around it."""
    weights = relax.const(np.ones((width, 4 * width), "float32"))

    def build(emit: Callable[[relax.Expr], relax.Var], x: relax.Var, h: relax.Var) -> relax.Var:
        for _ in range(steps):
            parts = emit(op.split(emit(op.add(emit(op.matmul(h, weights)), x)), 4, 1))
            gates = [emit(op.sigmoid(emit(relax.TupleGetItem(parts, k)))) for k in range(4)]
            kept, new = emit(op.multiply(gates[0], h)), emit(op.multiply(gates[1], gates[2]))
            h = emit(op.multiply(gates[3], emit(op.tanh(emit(op.add(kept, new))))))
        return h

    return graph([(1, 4 * width), (1, width)], build)


def _whole_sec(mod: tvm.IRModule, *strategies: str) -> list[float]:
    """What backends alone are estimated to take for a model."""
    targets = resolve_targets(["llvm", "onednn", "openvino"])
    imported = import_model(mod, targets.device)
    costs = WorkloadCosts(imported.mod, imported.graph, RooflineCostModel())
    partitionings = [without_search(imported.graph, targets, one) for one in strategies]
    return [
        sum(sec for sec in costs.seconds(one.candidates) if sec is not None)
        for one in partitionings
    ]


@pytest.mark.parametrize("steps", [3, 8, 20])
def test_each_call_that_a_library_makes_in_a_region_has_its_price(steps: int) -> None:
    """TVM fuses what a step does to one vector into a kernel or two; oneDNN calls each."""
    libraries = ("single:onednn", "single:openvino")
    tvm_sec, *once = _whole_sec(_gated_steps(steps), "single:tvm", *libraries)
    twice = _whole_sec(_gated_steps(2 * steps), *libraries)
    for once_sec, twice_sec in zip(once, twice, strict=True):
        assert tvm_sec < 0.7 * once_sec
        assert twice_sec == pytest.approx(2 * once_sec, rel=0.3)


def test_giving_a_tensor_another_shape_is_no_call() -> None:
    plain = graph([(4, 8)], lambda emit, x: op.exp(emit(op.nn.relu(x))))
    flat = graph([(4, 8)], lambda emit, x: op.reshape(emit(op.exp(emit(op.nn.relu(x)))), (32,)))
    assert _whole_sec(flat, "single:onednn") == _whole_sec(plain, "single:onednn")
