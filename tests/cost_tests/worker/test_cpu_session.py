"""How a worker times calls on a processor that others use, too."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.cost.config import MeasureConfig
from collage.cost.contest import Load
from collage.cost.device.load import LoadMeter
from collage.cost.worker.session import CpuSession
from collage.testing.graphs import graph

CONFIG = MeasureConfig(repeat=5, min_repeat=5, timing_budget_sec=1.0)
BURN = "while True: pass"

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="processes are not kept to cores here"
)


@pytest.fixture
def one_core() -> Iterator[int]:
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@contextmanager
def burning(core: int, programs: int) -> Iterator[None]:
    """Programs that never give a core away."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(programs)]
    try:
        for one in started:
            os.sched_setaffinity(one.pid, {core})
        time.sleep(0.2)
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.fixture
def machine(tmp_path: Path) -> relax.VirtualMachine:
    weights = relax.const(np.eye(192, dtype="float32"))
    mod = graph([(192, 192)], lambda emit, x: op.matmul(emit(op.exp(x)), weights))
    library = tmp_path / "model.so"
    tvm.compile(mod, "llvm").export_library(str(library))
    found = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    found.set_input("main", tvm.runtime.tensor(np.zeros((192, 192), "float32")))
    return found


def test_on_one_core_what_others_take_of_it_is_not_the_calls(
    machine: relax.VirtualMachine, one_core: int
) -> None:
    session = CpuSession()
    session.call(machine)
    quiet = statistics.median(session.sample(machine, CONFIG))
    with burning(one_core, 3):
        begin, took = time.perf_counter(), session.call(machine)
        waited = time.perf_counter() - begin
        crowded = statistics.median(session.sample(machine, CONFIG))
        (apart, *_) = session.take_apart(machine)
    assert 0.6 < crowded / quiet < 1.7, "by the wall clock it is 4 times as long"
    assert took < 2.0 * quiet and took <= waited
    assert apart.median_sec < 1.7 * quiet


def test_on_one_core_a_round_beside_others_counts(one_core: int) -> None:
    meter = LoadMeter([])
    with burning(one_core, 2):
        load = meter.read()
    assert load.others > 0.2
    assert not load.is_disturbing
    assert Load(load.others, 0.0).is_disturbing, "where the wall clock counts"
