"""Who is killed by somebody else is no candidate's failure, however often that happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.measure.builder import BuildJob
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.models import MeasuredCostModel
from collage.cost.processes.worker_process import WorkerProcess
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample
from collage.testing.fixtures.leftovers import workers
from collage.testing.fixtures.misbehaving import misbehaving_target, misbehaving_workload
from tests.cost_tests.conftest import Library

PLUGINS = ["collage.testing.fixtures.misbehaving:MisbehavingBackend"]


@contextmanager
def killing(
    times: int,
    is_victim: Callable[[psutil.Process], bool],
    number: signal.Signals = signal.SIGKILL,
) -> Iterator[list[int]]:
    """Kill workers of this process as soon as they work, so many one after the other."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        while len(killed) < times and not over.is_set():
            for child in workers():
                try:
                    if child.pid not in killed and is_victim(child):
                        os.kill(child.pid, number)
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


def hangs(child: psutil.Process) -> bool:
    """Whether it has loaded what hangs: it is at work for as long as it may."""
    return any("hang" in mapping.path for mapping in child.memory_maps())


@pytest.mark.parametrize(("times", "status"), [(2, CostStatus.TIMED_OUT), (5, CostStatus.UNKNOWN)])
def test_a_runner_that_is_killed_runs_it_again(
    config: MeasureConfig, library: Library, times: int, status: CostStatus
) -> None:
    job = library("hang")
    with LocalRunner(config) as runner:
        runner.run(library("right"))
        with killing(times, hangs) as killed:
            result = runner.run(job)
        assert len(killed) == times
        assert result.cost.status is status
        assert ("was killed by somebody" in result.cost.reason) == (status is CostStatus.UNKNOWN)
        assert runner.run(library("right")).cost.is_valid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP])
def test_who_is_ended_or_stopped_by_somebody_is_asked_again(
    config: MeasureConfig, library: Library, number: signal.Signals
) -> None:
    with LocalRunner(config) as runner, killing(1, hangs, number) as killed:
        result = runner.run(library("hang"))
    assert len(killed) == 1
    assert result.cost.status is CostStatus.TIMED_OUT
    assert "gave no answer" in result.cost.reason


def test_nothing_is_recorded_of_what_others_killed(
    context: BuildContext, config: MeasureConfig
) -> None:
    workload, target = misbehaving_workload(), misbehaving_target("hang")
    reported: list[ProgressEvent] = []
    database = JsonLinesDatabase()
    with MeasuredCostModel(
        context, database, config, progress=reported.append, plugins=PLUGINS
    ) as model:

        def is_running(child: psutil.Process) -> bool:
            return any(mapping.path.endswith("model.so") for mapping in child.memory_maps())

        with killing(5, is_running) as killed:
            (cost,) = model.estimate([workload], [target])
        assert len(killed) == 5
        assert model.recorded(workload, target) == cost
        assert model.stats.measured == 0
    assert not list(database.records([workload.key]))
    # Not unknown, which would say that the time was up.
    assert cost.status is CostStatus.RUN_FAILED
    assert "set aside: 5 workers were lost with it" in cost.reason
    assert [event.stage for event in reported if "set aside" in event.message] == ["lost"]


@contextmanager
def living_in(cgroup: Path) -> Iterator[None]:
    """Have workers of this process share a limit of memory: those of the servers that it has from
    now on."""
    members = cgroup / "cgroup.procs"
    worker = WorkerProcess(memory_limit_bytes=1 << 30)
    worker.wait_until_ready()
    server = psutil.Process(worker.pid).parent()
    worker.close()
    assert server is not None
    members.write_text(str(server.pid))
    try:
        yield
    finally:
        server.kill()
        while members.read_text().strip():
            time.sleep(0.01)


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """In which there is less memory than a candidate may take."""
    with contextlib.ExitStack() as stack:
        for parent, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max")):
            folder = Path("/sys/fs/cgroup") / parent / f"collage-test-{os.getpid()}"
            try:
                folder.mkdir()
                stack.callback(folder.rmdir)
                (folder / limit).write_text(str(700 << 20))
            except OSError:
                continue
            yield folder
            return
        pytest.skip("cgroups for memory cannot be made here")


def test_who_runs_out_of_the_systems_memory_twice_is_recorded(
    config: MeasureConfig,
    library: Library,
    small_cgroup: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A server of its own, which forks what then lives where it does.
    monkeypatch.setenv("LIVES_IN", str(small_cgroup))
    config = replace(config, memory_limit_bytes=1 << 30)
    with living_in(small_cgroup), LocalRunner(config) as runner:
        result = runner.run(library("eat"))
        assert runner.run(library("right")).cost.is_valid
    assert result.cost.status is CostStatus.OUT_OF_MEMORY
    assert "was killed by the system" in result.cost.reason


def test_a_runner_that_is_killed_while_it_starts_starts_again(
    config: MeasureConfig, library: Library
) -> None:
    job = library("right")
    with LocalRunner(config) as runner, killing(3, lambda child: True) as killed:
        assert runner.run(job).cost.is_valid
    assert len(killed) == 3


@pytest.fixture
def slow_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A plugin that takes long to import."""
    (tmp_path / "slow_start.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return ["slow_start:Backend"]


def test_who_is_killed_again_and_again_while_it_starts_cannot(slow_start: list[str]) -> None:
    worker = WorkerProcess(slow_start, memory_limit_bytes=1 << 30)
    with (
        killing(99, lambda child: True),
        pytest.raises(MeasurementError, match="cannot start: was killed"),
    ):
        worker.wait_until_ready()
    worker.close()


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


@pytest.mark.parametrize("times", [2, 5])
def test_whole_models_whose_processes_are_killed_are_timed_again(
    config: MeasureConfig, library: Library, tmp_path: Path, times: int
) -> None:
    jobs = [library(word) for word in ("right", "sleep")]
    models = [WholeModel(str(job.library), "model", (misbehaving_target(),)) for job in jobs]
    question = EndToEndQuestion(models, [Sample.load(jobs[0].sample)], rounds=2)

    def sleeps(child: psutil.Process) -> bool:
        return any("sleep" in mapping.path for mapping in child.memory_maps())

    with killing(times, sleeps) as killed:
        right, sleeping = EndToEndTimer(config, tmp_path).measure(
            question, [job.library for job in jobs]
        )
    assert len(killed) == times
    assert right.cost.is_valid
    assert sleeping.cost.status is (CostStatus.VALID if times < 5 else CostStatus.UNKNOWN)
    assert ("was killed by somebody" in sleeping.cost.reason) == (times == 5)


def test_a_process_that_is_not_wanted_any_longer_is_not_started_again(
    slow_start: list[str],
) -> None:
    worker = WorkerProcess(slow_start, memory_limit_bytes=1 << 30)
    closing = threading.Timer(0.05, worker.kill)
    closing.start()
    with pytest.raises(MeasurementError, match="cannot start"):
        worker.wait_until_ready()
    assert not worker.alive
    worker.close()


@pytest.mark.parametrize(("times", "status"), [(2, CostStatus.TIMED_OUT), (5, CostStatus.UNKNOWN)])
def test_a_builder_that_is_killed_builds_again(
    context: BuildContext, tmp_path: Path, times: int, status: CostStatus
) -> None:
    config = MeasureConfig(build_timeout_sec=5.0)
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
    assert ("was killed by somebody" in bad.reason) == (times == 5)


def mortal_compiler(folder: Path, part: str, kills: int) -> Path:
    """A compiler of which one part is killed, so many times one after the other."""
    folder.mkdir()
    for number in range(kills):
        (folder / f"life-{number}").touch()
    real = subprocess.run(
        ["g++", f"-print-prog-name={part}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    dies = f'for life in {folder}/life-*; do [ -e "$life" ] && rm "$life" && kill -KILL $$; done\n'
    scripts = {part: f'#!/bin/sh\n{dies}exec {real} "$@"\n'}
    if part != "g++":
        scripts["g++"] = f'#!/bin/sh\nexec g++ -B{folder}/ "$@"\n'
    else:
        # It is asked for its version, too.
        scripts["g++"] = f'#!/bin/sh\n[ "$1" = --version ] || {{ {dies}}}\nexec g++ "$@"\n'
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "g++"


@pytest.mark.parametrize(("part", "kills"), [("g++", 1), ("cc1", 2), ("ld", 2), ("ld", 9)])
def test_a_compiler_that_is_killed_is_no_failed_build(
    context: BuildContext, tmp_path: Path, part: str, kills: int
) -> None:
    cxx = str(mortal_compiler(tmp_path / "compiler", part, kills))
    mine = replace(context, cxx=cxx, cache_dir=tmp_path / "cache")
    job = BuildJob(misbehaving_workload(), misbehaving_target(), tmp_path / "job")
    with LocalBuilder(mine, MeasureConfig(), PLUGINS, parallel=1) as builder:
        (result,) = builder.build([job])
    left = len(list((tmp_path / "compiler").glob("life-*")))
    if kills < 5:
        assert result.status is CostStatus.VALID, result.reason
        assert not left
    else:
        assert result.status is CostStatus.UNKNOWN
        assert "5 workers were lost with it" in result.reason
        assert left == kills - 5
