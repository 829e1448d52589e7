"""A device that others measure on too is held for what must not be disturbed, and no longer.

The device here is the fragile one: real worker processes, which take the steps that a GPU's take.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.backends.devices import CUDA
from collage.backends.storage import exclusive
from collage.cost.base import CostStatus
from collage.cost.config import CudaConfig, MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import Record
from collage.cost.device import CUDA_POLICY, Device
from collage.cost.engines import LocalEngine
from collage.cost.measure.engine import Work
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.scheduler import Measurer
from collage.cost.progress import ProgressEvent
from collage.testing.runner_contract import RunnerContract
from tests.cost_tests.conftest import Library, ToyTarget, toy_workload
from tests.cost_tests.worker.fragile_device import SLOW_UPLOAD_SEC, FragileRunner, fragile_policy

RUN_LIMIT_SEC = 4.0
CONFIG = MeasureConfig(
    repeat=3,
    min_repeat=2,
    min_repeat_sec=0.005,
    warmup_sec=0.002,
    memory_limit_bytes=512 << 20,
    cuda=CudaConfig(run_timeout_sec=RUN_LIMIT_SEC),
)


@pytest.fixture
def config() -> MeasureConfig:
    return CONFIG


class TestStepByStep(RunnerContract):
    """The contract, but for limits on address space, which are a processor's alone."""

    limits_address_space = False

    @pytest.fixture(scope="class")
    @classmethod
    def shared_runner(cls) -> Iterator[LocalRunner]:
        with FragileRunner(CONFIG, policy=fragile_policy("sound")) as runner:
            yield runner

    @pytest.fixture
    def runner(self, shared_runner: LocalRunner) -> LocalRunner:
        return shared_runner


@contextmanager
def after_a_wait_of(seconds: float) -> Iterator[None]:
    time.sleep(seconds)
    yield


def test_a_candidate_is_not_charged_for_waiting(config: MeasureConfig, library: Library) -> None:
    wait_sec = RUN_LIMIT_SEC + 0.5
    with FragileRunner(config, policy=fragile_policy("sound")) as runner:
        result = runner.run_sharing(library("right"), lambda: after_a_wait_of(wait_sec))
    assert result.cost.is_valid and result.run_sec < wait_sec


def test_all_steps_together_have_one_time_limit(config: MeasureConfig, library: Library) -> None:
    """What loading took is missing when the kernel hangs."""
    with FragileRunner(config, policy=fragile_policy("slow")) as runner:
        runner.run(library("right"))  # So that starting the worker is not in the figure.
        result = runner.run_sharing(library("hang"), lambda: after_a_wait_of(0.5))
    assert result.cost.status is CostStatus.TIMED_OUT
    assert f"no answer within {RUN_LIMIT_SEC:g} s" in result.cost.reason
    assert RUN_LIMIT_SEC <= result.run_sec < RUN_LIMIT_SEC + SLOW_UPLOAD_SEC


def test_nothing_is_called_before_the_device_is_free(
    config: MeasureConfig, library: Library
) -> None:
    """A kernel that would end its process does not come to that; the runner stays usable."""

    @contextmanager
    def never() -> Iterator[None]:
        raise MeasurementError("another process holds the device since an hour")
        yield

    with FragileRunner(config, policy=fragile_policy("sound")) as runner:
        with pytest.raises(MeasurementError, match="since an hour"):
            runner.run_sharing(library("abort"), never)
        assert runner.pid is None, "what was prepared must not meet the next request"
        assert runner.run(library("right")).cost.is_valid


def test_a_process_that_dies_while_it_waits_is_replaced(
    config: MeasureConfig, library: Library
) -> None:
    """Not the candidate's doing: nothing of it was called."""
    turns: list[int | None] = []

    with FragileRunner(config, policy=fragile_policy("sound")) as runner:

        @contextmanager
        def device_lock() -> Iterator[None]:
            turns.append(runner.pid)
            if len(turns) == 1 and runner.pid is not None:
                os.kill(runner.pid, signal.SIGSEGV)
            yield

        assert runner.run(library("right")).cost.is_valid
        assert runner.run_sharing(library("right"), device_lock).cost.is_valid
    assert len(turns) == 2 and turns[0] != turns[1]


class _Search:
    """Measures on a GPU that is the fragile device in truth, under the real lock."""

    def __init__(self, context: BuildContext, config: MeasureConfig, toy: ToyTarget) -> None:
        self.stats, self.events = MeasureStats(), list[ProgressEvent]()
        self._database, self._toy = JsonLinesDatabase(), toy
        self._keys = KeyMaker(context, config, Device("cuda", "toy", 1, "sm_90", "1"))
        runner = FragileRunner(config, policy=fragile_policy("slow"))
        self._measurer = Measurer(
            LocalEngine(runner, Device("cuda", "toy", 1, "sm_90", "1")),
            Work(CUDA_POLICY, context, config, parallel_builds=1),
            RecordLookup(self._database, self.stats),
            self.stats,
            self.events.append,
            plugins=["tests.cost_tests.toy_backend:ToyBackend"],
        )

    def __enter__(self) -> _Search:
        return self

    def __exit__(self, *_: object) -> None:
        self._measurer.close()

    def measure(self, *behaviours: str) -> list[Record]:
        targets = [self._toy(behaviour=behaviour) for behaviour in behaviours]
        questions = [(toy_workload(4, 1000), target) for target in targets]
        keys = [self._keys.partition(*question) for question in questions]
        self._measurer.measure(dict(zip(keys, questions, strict=True)))
        records = [self._database.lookup(key) for key in keys]
        return [record for record in records if record is not None]


@pytest.fixture
def search(context: BuildContext, config: MeasureConfig, toy: ToyTarget) -> Iterator[_Search]:
    with _Search(context, config, toy) as made:
        yield made


def test_others_have_the_device_while_a_candidate_is_loaded(search: _Search) -> None:
    waits: list[float] = []
    stop = threading.Event()

    def another() -> None:
        while not stop.is_set():
            begin = time.monotonic()
            with exclusive(CUDA):
                waits.append(time.monotonic() - begin)
            time.sleep(0.01)

    thread = threading.Thread(target=another)
    thread.start()
    try:
        records = search.measure("right", "sleep", "wrong")
    finally:
        stop.set()
        thread.join()
    statuses = [record.cost.status for record in records]
    assert statuses == [CostStatus.VALID, CostStatus.VALID, CostStatus.WRONG_RESULT]
    # Somebody who comes at any time waits for calls, never for the upload.
    assert max(waits) < SLOW_UPLOAD_SEC / 2 and len(waits) > 30
    assert search.stats.seconds_running > 3 * SLOW_UPLOAD_SEC
    assert 0 < search.stats.seconds_holding < search.stats.seconds_running - 3 * SLOW_UPLOAD_SEC
    assert all(record.run_sec > SLOW_UPLOAD_SEC for record in records)


def test_waiting_for_the_device_is_told_and_counted_apart(search: _Search) -> None:
    search.measure("sleep")  # Processes are started, the next one is prepared in a second.
    running, building = search.stats.seconds_running, search.stats.seconds_building
    held = threading.Event()

    def another() -> None:
        with exclusive(CUDA):
            held.set()
            time.sleep(SLOW_UPLOAD_SEC + 2.0)

    thread = threading.Thread(target=another)
    thread.start()
    assert held.wait(10)
    begin = time.monotonic()
    (record,) = search.measure("right")
    elapsed = time.monotonic() - begin
    thread.join()
    assert record.cost.is_valid
    assert [event.stage for event in search.events] == ["measure", "wait", "measure"]
    stats = search.stats
    assert stats.seconds_waiting > 0.5 and stats.seconds_running - running < elapsed - 0.5
    counted = stats.seconds_waiting + stats.seconds_running + stats.seconds_building
    assert counted - running - building == pytest.approx(elapsed, abs=0.2)


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        ("abort", CostStatus.CRASHED),
        ("abort later", CostStatus.CRASHED),
        ("hang", CostStatus.TIMED_OUT),
        ("raise", CostStatus.RUN_FAILED),
    ],
)
def test_a_candidate_that_fails_on_the_device_frees_it(
    search: _Search, behaviour: str, status: CostStatus
) -> None:
    bad, good = search.measure(behaviour, "right")
    assert bad.cost.status is status and good.cost.is_valid
    with exclusive(CUDA, lambda: pytest.fail("the device was not let go")):
        pass
