"""Whole models in one session: one that ends it is out; whoever else ends it is no model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from collage.backends.contract import BuildContext
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY
from collage.cost.engines.rpc.engine import RpcEngine
from collage.cost.engines.rpc.sessions import RpcOptions
from collage.cost.measure.engine import Work, Workers
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.progress import ProgressEvent, ignore
from collage.cost.reference import Sample
from collage.testing.fixtures.misbehaving import misbehaving_job, misbehaving_target
from collage.testing.fixtures.rpc_fleet import RpcFleet
from tests.object_cache import cache_with_objects

pytestmark = pytest.mark.fleet

CONFIG = MeasureConfig(
    repeat=3, min_repeat=2, min_repeat_sec=0.005, run_timeout_sec=4.0, memory_limit_bytes=1 << 30
)


@pytest.fixture(scope="module")
def workers(fleet: RpcFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("work")
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=1)
    context.work_dir.mkdir()
    engine = RpcEngine(fleet.tracker, RpcOptions(fleet.key))
    with engine.open(Work(CPU_POLICY, context, CONFIG)) as workers:
        yield workers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=1)
    made: dict[str, Path] = {}

    def compiled(word: str) -> Path:
        if word not in made:
            made[word] = misbehaving_job(word, folder / word, context).library
        return made[word]

    return compiled


def question(words: list[str]) -> EndToEndQuestion:
    models = [WholeModel(f"key of {word}", word, (misbehaving_target(),)) for word in words]
    x = np.random.default_rng().standard_normal((4, 1000), np.float32)
    return EndToEndQuestion(models, [Sample.of([x], [np.maximum(x, 0.0)])], rounds=4)


def test_a_model_that_ends_the_session_is_out_and_the_others_begin_anew(
    workers: Workers, library: Callable[[str], Path]
) -> None:
    words = ["right", "null", "abort later", "sleep"]
    results = workers.timer(ignore).measure(question(words), [library(word) for word in words])
    right, null, later, sleep = (result.cost for result in results)
    assert right.is_valid and sleep.is_valid and right.median_sec < sleep.median_sec
    assert (null.status, later.status) == (CostStatus.CRASHED, CostStatus.CRASHED)
    assert "SIGSEGV" in null.reason and "SIGABRT" in later.reason
    rounds = {len(result.rounds.seconds) for result in (results[0], results[3]) if result.rounds}
    assert len(rounds) == 1, "they played the same rounds"


def test_a_session_that_somebody_kills_between_turns_is_played_anew(
    fleet: RpcFleet, workers: Workers, library: Callable[[str], Path]
) -> None:
    killed = []

    def watch(event: ProgressEvent) -> None:
        if event.stage == "end to end" and event.done == 2 and not killed:
            victim = fleet.sessions()[-1]
            killed.append(victim.pid)
            victim.kill()

    words = ["right", "sleep"]
    results = workers.timer(watch).measure(question(words), [library(word) for word in words])
    assert killed and all(result.cost.is_valid for result in results)


def test_a_tracker_that_is_started_again_is_waited_for(
    fleet: RpcFleet, workers: Workers, library: Callable[[str], Path]
) -> None:
    """It was away when a session had to be opened again."""
    restarts: list[threading.Timer] = []

    def watch(event: ProgressEvent) -> None:
        if event.stage == "end to end" and event.done == 2 and not restarts:
            fleet.end_tracker()
            fleet.sessions()[-1].kill()
            restarts.append(threading.Timer(3.0, fleet.start_tracker))
            restarts[0].start()

    try:
        results = workers.timer(watch).measure(question(["right"]), [library("right")])
    finally:
        for restart in restarts:
            restart.join()
    assert restarts and results[0].cost.is_valid
    fleet.wait_for(2)
