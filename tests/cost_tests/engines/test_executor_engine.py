"""Threads, processes and Dask's cluster build, whatever happens to them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from collage.backends.contract import BuildContext
from collage.cost.base import CostStatus
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker
from collage.cost.device import CPU_POLICY
from collage.cost.engines._far_build import Refused, build_there, read_delivery
from collage.cost.engines.executor import ExecutorEngine
from collage.cost.engines.executor_builder import ExecutorBuilder
from collage.cost.measure.builder import BuildJob
from collage.cost.measure.engine import Engine, Work
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.replay import MeasureStats, RecordLookup
from collage.cost.measure.runner import RunJob
from collage.cost.measure.scheduler import Measurer
from collage.cost.progress import ignore
from collage.testing import EngineContract
from collage.testing.fixtures.engine_fixtures import CONFIG, PLUGINS
from collage.testing.fixtures.misbehaving import misbehaving_target, misbehaving_workload
from tests.cost_tests.conftest import ToyTarget

IDLE_SEC = 20.0


class TestThreads(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(time.sleep, [0.1] * 4))  # What is the executor's is there before.
            yield ExecutorEngine(threads, idle_sec=IDLE_SEC)


@pytest.fixture
def spawned() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        yield processes


@pytest.fixture
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'dask'")
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=folder,
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.fixture
def work(context: BuildContext) -> Work:
    return Work(CPU_POLICY, context, CONFIG)


def job(folder: Path, build: str = "normal", rows: int = 3) -> BuildJob:
    return BuildJob(misbehaving_workload(rows, 8), misbehaving_target("right", build), folder)


def builder_of(executor: Executor, work: Work) -> ExecutorBuilder:
    return ExecutorBuilder(executor, work, PLUGINS, 4, IDLE_SEC)


def test_backends_that_are_not_asked_for_are_not_looked_for_elsewhere(
    spawned: Executor, work: Work, tmp_path: Path, toy: ToyTarget
) -> None:
    """Builds were refused for want of whatever else this process had registered."""
    toy()
    with builder_of(spawned, work) as builder, warnings.catch_warnings():
        warnings.simplefilter("error")  # Nothing is built here.
        (result,) = builder.build([job(tmp_path / "0")])
    assert result.status is CostStatus.VALID, result


@pytest.mark.parametrize("kind", ["spawned", "dask"])
def test_other_processes_build_and_what_fails_there_is_told(
    kind: str, work: Work, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    executor = request.getfixturevalue(kind)
    jobs = [job(tmp_path / str(n), rows=n + 1) for n in range(3)]
    jobs += [job(tmp_path / "die", "die"), job(tmp_path / "refuse", "refuse")]
    with builder_of(executor, work) as builder, LocalRunner(CONFIG) as runner:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Nothing is built here.
            *right, died, refused = builder.build(jobs)
        for one, result in zip(jobs, right, strict=False):
            assert result.status is CostStatus.VALID and result.library is not None, result
            assert runner.run(RunJob.in_folder(one.folder)).cost.is_valid
    assert died.status is CostStatus.CRASHED and "SIGABRT" in died.reason
    assert refused.status is CostStatus.BUILD_FAILED and "does not want to" in refused.reason


class Faulty(Executor):
    """Does what it is told to, and fails on the way."""

    def __init__(self, fault: Callable[[int, bytes], bytes]) -> None:
        self._fault = fault
        self._threads = ThreadPoolExecutor(1)
        self.calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return self._threads.submit(self._do, self.calls, fn, *args)

    def _do(self, number: int, function: Callable[[bytes], bytes], order: bytes) -> bytes:
        return self._fault(number, function(order))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)


def _raises_twice(number: int, answer: bytes) -> bytes:
    if number <= 2:
        raise OSError("the connection was reset")
    return answer


def _cuts_off(number: int, answer: bytes) -> bytes:
    return answer[: len(answer) // 2] if number == 1 else answer


def _garbles(number: int, answer: bytes) -> bytes:
    return b"no delivery" if number == 1 else answer


@pytest.mark.parametrize(("fault", "calls"), [(_raises_twice, 3), (_cuts_off, 2), (_garbles, 2)])
def test_what_is_lost_on_the_way_is_built_again(
    fault: Callable[[int, bytes], bytes], calls: int, work: Work, tmp_path: Path
) -> None:
    with Faulty(fault) as executor, builder_of(executor, work) as builder:
        (result,) = builder.build([job(tmp_path / "job")])
        assert result.status is CostStatus.VALID and (tmp_path / "job" / "model.so").is_file()
        assert executor.calls == calls


def _never(number: int, answer: bytes) -> bytes:
    raise OSError("no route to host")


def test_what_the_executor_cannot_build_at_all_is_built_here_and_said(
    work: Work, tmp_path: Path
) -> None:
    jobs = [job(tmp_path / "a"), job(tmp_path / "b", "refuse"), job(tmp_path / "c", rows=4)]
    told: list[int] = []
    with (
        Faulty(_never) as executor,
        builder_of(executor, work) as builder,
        pytest.warns(RuntimeWarning, match="the rest is built here: no route to host"),
    ):
        results = builder.build(jobs, lambda index, result: told.append(index))
    assert [result.status for result in results] == [
        CostStatus.VALID,
        CostStatus.BUILD_FAILED,
        CostStatus.VALID,
    ]
    assert sorted(told) == [0, 1, 2]


def test_an_executor_that_breaks_or_was_shut_down_is_replaced_by_this_machine(
    spawned: ProcessPoolExecutor, work: Work, tmp_path: Path
) -> None:
    """Its process is killed while it builds, as the kernel does when memory is short."""
    pid = spawned.submit(os.getpid).result()
    killer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    with builder_of(spawned, work) as builder, pytest.warns(RuntimeWarning, match="built here"):
        killer.start()
        try:
            results = builder.build([job(tmp_path / str(n), rows=n + 1) for n in range(6)])
        finally:
            killer.join()
        assert [result.status for result in results] == [CostStatus.VALID] * 6
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    with builder_of(ended, work) as builder, pytest.warns(RuntimeWarning, match="shutdown"):
        (result,) = builder.build([job(tmp_path / "later")])
    assert result.status is CostStatus.VALID


def test_another_version_on_the_far_side_is_refused(work: Work, tmp_path: Path) -> None:
    """What the log would say of such a build is not true."""
    orders: list[bytes] = []

    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            orders.append(args[0])
            return super().submit(fn, *args)

    with Noting(1) as executor, builder_of(executor, work) as builder:
        builder.build([job(tmp_path / "job")])
        other = orders[0].replace(b'"tvm": "0.27', b'"tvm": "0.26')
        delivery, files = read_delivery(build_there(other))
        assert isinstance(delivery, Refused) and "tvm is 0.27" in delivery.reason and not files
        delivery, _ = read_delivery(build_there(b"{}"))
        assert isinstance(delivery, Refused)


def test_measurements_through_an_executor_are_recorded_once(work: Work, tmp_path: Path) -> None:
    database, stats = JsonLinesDatabase(tmp_path / "log.jsonl"), MeasureStats()
    questions = [(misbehaving_workload(n, 8), misbehaving_target()) for n in range(1, 6)]
    questions.append((misbehaving_workload(9, 9), misbehaving_target("right", "refuse")))
    with ThreadPoolExecutor(2) as threads:
        engine = ExecutorEngine(threads, parallel=2, elsewhere=True, idle_sec=IDLE_SEC)
        measurer = Measurer(engine, work, RecordLookup(database, stats), stats, ignore, PLUGINS)
        keys = KeyMaker(work.context, CONFIG, measurer.device)
        misses = {keys.partition(*question): question for question in questions}
        try:
            measurer.measure(misses)
        finally:
            measurer.close()
    found = [database.lookup(key) for key in misses]
    assert [record.cost.status for record in found if record is not None] == [
        *[CostStatus.VALID] * 5,
        CostStatus.BUILD_FAILED,
    ]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 6
    assert not list(work.context.work_dir.glob("measure-*"))
    assert not list(work.context.work_dir.glob("wanted-*"))
