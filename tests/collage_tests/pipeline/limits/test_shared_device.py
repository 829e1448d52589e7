"""A budget is kept where others measure on the device, and counts what an import takes."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tvm.relax import op

import collage
from collage.backends.contract.errors import OutOfTimeError
from collage.backends.devices import CPU
from collage.backends.storage import exclusive
from collage.cost.database import JsonLinesDatabase
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.places.holding import Holding
from collage.cost.measure.recorder import Recorder
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.watch import Watch
from collage.cost.progress import ProgressEvent
from collage.pipeline.limits import Budget
from collage.testing import graph

_OTHERS_SEC = 300.0


@contextmanager
def measured_by_others():
    """Another one has the device, for longer than any budget here."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive(CPU):
            held.set()
            done.wait(_OTHERS_SEC)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        held.wait()
        yield thread
    finally:
        done.set()
        thread.join()


def test_there_is_an_answer_while_others_measure(tmp_path: Path) -> None:
    """It was waited for them, for up to an hour."""
    said: list[ProgressEvent] = []
    mod = graph([(8, 8)], lambda emit, x: op.exp(x))
    with measured_by_others() as others:
        result = collage.optimize(mod, ["llvm"], time_budget_sec=2.0, progress=said.append)
        assert others.is_alive()
    assert result.report.search.contenders_timed >= 1
    assert any("goes on measuring" in event.message for event in said)
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)
    np.testing.assert_allclose(
        collage.load(result.export(tmp_path / "net.bundle"))(x), np.exp(x), rtol=1e-5
    )


def test_a_device_is_shared_when_nobody_wants_to_wait_any_longer() -> None:
    stats, said = MeasureStats(), []
    recorder = Recorder(RecordLookup(JsonLinesDatabase(), stats), said.append)
    holding = Holding(NEVER, stats, Watch({}, print), recorder)

    def hold(waiting, given_up):
        return exclusive(CPU, waiting, given_up)

    with measured_by_others():
        with holding.device(hold, sharing=Deadline.after(0.1)):
            pass
        with pytest.raises(OutOfTimeError), holding.device(hold, Deadline.after(0.1)):
            pass
    assert stats.seconds_waiting >= 0.1


def test_trying_ends_with_its_share_and_with_an_interrupt() -> None:
    budget = Budget(100.0, clock=lambda: 50.0)
    assert budget.trying.end == 90.0 and not Budget().trying.is_limited
    budget.interrupt()
    assert budget.trying.end == 50.0


def test_a_budget_runs_from_the_call_on_and_stages_are_imported_after_it() -> None:
    """Importing them took 3 s that no budget knew of."""
    assert Budget(10.0, began=40.0, clock=lambda: 43.0).elapsed_sec == 3.0
    program = "import sys, collage; collage.optimize; print('tvm' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"
