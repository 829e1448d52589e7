"""Who is killed by somebody else is no candidate's failure, unless it happens again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.measure.builder import BuildJob
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.reference import Sample
from collage.testing.fixtures.misbehaving import misbehaving_target, misbehaving_workload
from tests.cost_tests.conftest import Library

PLUGINS = ["collage.testing.fixtures.misbehaving:MisbehavingBackend"]


def is_worker(child: psutil.Process) -> bool:
    return any("child_boot" in word for word in child.cmdline())


@contextmanager
def killing(times: int, is_victim: Callable[[psutil.Process], bool]) -> Iterator[list[int]]:
    """Kill workers of this process as soon as they work, so many one after the other."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        while len(killed) < times and not over.is_set():
            for child in psutil.Process().children():
                try:
                    if child.pid not in killed and is_worker(child) and is_victim(child):
                        os.kill(child.pid, signal.SIGKILL)
                        killed.append(child.pid)
                        break
                except (psutil.Error, ProcessLookupError):
                    continue
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("times", "status"), [(1, CostStatus.TIMED_OUT), (2, "killed")])
def test_a_runner_that_is_killed_once_runs_it_again(
    config: MeasureConfig, library: Library, times: int, status: CostStatus | str
) -> None:
    job = library("hang")  # It works for as long as it may, so every kill finds it at work.
    with LocalRunner(config) as runner:
        runner.run(library("right"))

        def hangs(child: psutil.Process) -> bool:
            return any("hang" in mapping.path for mapping in child.memory_maps())

        with killing(times, hangs) as killed:
            result = runner.run(job)
        assert len(killed) == times
        if status == "killed":
            assert result.cost.status is CostStatus.OUT_OF_MEMORY
            assert "was killed" in result.cost.reason
        else:
            assert result.cost.status is status
        assert runner.run(library("right")).cost.is_valid


def test_a_runner_that_is_killed_while_it_starts_starts_again(
    config: MeasureConfig, library: Library
) -> None:
    job = library("right")
    with LocalRunner(config) as runner, killing(3, lambda child: True) as killed:
        assert runner.run(job).cost.is_valid
    assert len(killed) == 3


def test_who_is_killed_again_and_again_while_it_starts_cannot(
    config: MeasureConfig, library: Library
) -> None:
    job = library("right")
    with (
        LocalRunner(config) as runner,
        killing(99, lambda child: True),
        pytest.raises(MeasurementError, match="cannot start: was killed"),
    ):
        runner.run(job)


def test_whole_models_whose_processes_are_killed_while_they_start_are_timed(
    config: MeasureConfig, library: Library, tmp_path: Path
) -> None:
    jobs = [library(word) for word in ("right", "sleep")]
    models = [WholeModel(str(job.library), "model", (misbehaving_target(),)) for job in jobs]
    question = EndToEndQuestion(models, [Sample.load(jobs[0].sample)], rounds=2)
    with killing(3, lambda child: True) as killed:
        results = EndToEndTimer(config, tmp_path).measure(question, [job.library for job in jobs])
    assert len(killed) == 3
    assert all(result.cost.is_valid for result in results)


def test_a_process_that_is_not_wanted_any_longer_is_not_started_again() -> None:
    worker = WorkerProcess(memory_limit_bytes=1 << 30)
    closing = threading.Timer(0.05, worker.kill)
    closing.start()
    with pytest.raises(MeasurementError, match="cannot start"):
        worker.wait_until_ready()
    assert not worker.alive
    worker.close()


@pytest.mark.parametrize(
    ("times", "status"), [(1, CostStatus.TIMED_OUT), (2, CostStatus.OUT_OF_MEMORY)]
)
def test_a_builder_that_is_killed_builds_again(
    context: BuildContext, tmp_path: Path, times: int, status: CostStatus
) -> None:
    config = MeasureConfig(build_timeout_sec=10.0)
    jobs = [
        BuildJob(misbehaving_workload(), misbehaving_target(build=build), tmp_path / build)
        for build in ("hang", "normal")
    ]
    folder = jobs[0].folder

    def is_at_it(child: psutil.Process) -> bool:
        if not folder.exists():
            return False
        folder.rename(tmp_path / f"{folder.name} {child.pid}")
        return True

    with (
        LocalBuilder(context, config, PLUGINS, parallel=1) as builder,
        killing(times, is_at_it) as killed,
    ):
        bad, good = builder.build(jobs)
    assert len(killed) == times
    assert bad.status is status and good.status is CostStatus.VALID
    assert ("was killed" in bad.reason) == (times == 2)
