"""Whole models in real processes while another program burns all cores for some seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.target import Target

from collage.backends import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.link import stage_libraries
from collage.cost.config import MeasureConfig
from collage.cost.contest import PairedComparison, paired_comparisons
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample
from collage.testing.graphs import Emit, graph
from tests.object_cache import cache_with_objects

SIZE = 256
PRODUCTS = (13, 10, 16)
"""Of the contenders: two take 30 % and 60 % longer than the second. All but the first product are
of numbers that never reach the result, which no normal form can know."""

BURN_SEC = 3.0
BURN = "import sys, time; end = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"


class Burst:
    """Burns every core from a contest's third turn on; use as a context manager."""

    def __init__(self) -> None:
        self._turns = 0
        self._burning: list[subprocess.Popen[bytes]] = []

    def __call__(self, event: ProgressEvent) -> None:
        self._turns += 1
        if self._turns == 2:
            command = [sys.executable, "-c", BURN, str(BURN_SEC)]
            self._burning = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]

    def __enter__(self) -> Burst:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._burning:
            process.kill()
            process.wait()


def chain(weights: np.ndarray, products: int) -> tvm.IRModule:
    """``relu(x @ weights)``: what the other products give is below zero, taken less two."""

    def body(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(emit(op.matmul(x, relax.const(weights)))))
        z = y
        for _ in range(products - 1):
            z = emit(op.tanh(emit(op.matmul(z, relax.const(weights)))))
        return emit(op.maximum(y, emit(op.subtract(z, relax.const(2.0, "float32")))))

    return graph([(SIZE, SIZE)], body)


def contest_under_load(folder: Path, repetitions: int) -> list[list[PairedComparison]]:
    rng = np.random.default_rng(0)
    x, weights = (rng.standard_normal((SIZE, SIZE)).astype("float32") for _ in range(2))
    targets = (BackendTarget.of("tvm", Target("llvm")),)
    context = BuildContext(cache_with_objects(folder), folder / "work")
    libraries, models = [], []
    for products in PRODUCTS:
        place = folder / str(products) / "model.so"
        stage_libraries(
            compile_module(chain(weights, products), targets, place, context), copy=False
        )
        libraries.append(place)
        models.append(WholeModel(str(products), f"{products} products", targets))
    question = EndToEndQuestion(models, [Sample.of([x], [np.maximum(x @ weights, 0)])])
    found = []
    for _ in range(repetitions):
        with Burst() as burst:
            timer = EndToEndTimer(MeasureConfig(), folder, burst)
            results = timer.measure(question, libraries)
        rounds = [result.rounds for result in results]
        assert all(result.cost.is_valid for result in results)
        found.append(paired_comparisons([one.counted for one in rounds if one], range(len(models))))
        assert rounds[0] and rounds[0].disturbed, "the load was seen"
    return found


def chosen(comparison: list[PairedComparison]) -> int:
    return next(i for i, one in enumerate(comparison) if one.is_chosen)


def test_load_for_some_seconds_does_not_change_the_choice(tmp_path: Path) -> None:
    (comparison,) = contest_under_load(tmp_path, 1)
    assert chosen(comparison) == 1


@pytest.mark.slow
def test_nine_of_ten_contests_under_load_choose_as_an_idle_machine_would(tmp_path: Path) -> None:
    choices = [chosen(comparison) for comparison in contest_under_load(tmp_path, 10)]
    assert choices.count(1) >= 9
