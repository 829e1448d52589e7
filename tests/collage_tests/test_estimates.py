"""Guesses of what was not measured: careful, and learnt from what was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op

from collage.backends.contract import BackendTarget
from collage.cost.base import Cost, CostStatus
from collage.cost.workload.workload import Workload
from collage.estimates import Estimates, importance
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
    assert estimates.seconds(one, ONEDNN) == estimates.seconds(one, TVM)


def test_importance_follows_arithmetic_and_traffic() -> None:
    assert importance(LARGE) > importance(PRODUCTS[0])
    assert importance(_pointwise(1 << 22)) > importance(_pointwise(1 << 10))
