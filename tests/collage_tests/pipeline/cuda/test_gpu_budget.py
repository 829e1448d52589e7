"""Budgets on a real GPU, where candidates are built, timed and the answer in hand made at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.progress import ProgressEvent
from collage.testing.fixtures.leftovers import workers
from tests.collage_tests.pipeline.cuda import gpu_models
from tests.collage_tests.pipeline.cuda.test_gpu_optimize import HALF_TOLERANCE, LIBRARIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize("seconds", [0.0, 20.0, 60.0])
@pytest.mark.parametrize("name", ["convolutions", "transformer"])
def test_there_is_an_answer_in_time(name: str, seconds: float, tmp_path: Path) -> None:
    model = getattr(gpu_models, name)()
    events: list[tuple[float, ProgressEvent]] = []
    before = workers()
    begin = time.monotonic()
    result = collage.optimize(
        model.module,
        LIBRARIES,
        log=tmp_path / "log.jsonl",
        time_budget_sec=seconds,
        progress=lambda event: events.append((time.monotonic() - begin, event)),
    )
    bundle = collage.load(result.export(tmp_path / "bundle"))
    elapsed = time.monotonic() - begin
    first = next(sec for sec, e in events if e.stage == "end to end" and e.done == e.total)
    assert elapsed <= max(1.1 * seconds + 0.5, first + 3.0)
    x = model.input(7)
    model.check(x, np.asarray(bundle(x)), HALF_TOLERANCE)
    assert not workers() - before, "workers that are left"


def test_an_interrupt_gives_the_best_answer_so_far(tmp_path: Path) -> None:
    model = gpu_models.mixed()
    measured: list[str] = []

    def on_event(event: ProgressEvent) -> None:
        if event.stage == "measure":
            measured.append(event.message)
            if len(measured) == 8:
                threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT)).start()

    result = collage.optimize(model.module, LIBRARIES, progress=on_event)
    assert result.report.search.interrupted
    x = model.input(7)
    bundle = collage.load(result.export(tmp_path / "bundle"))
    model.check(x, np.asarray(bundle(x)), HALF_TOLERANCE)
