"""What fails between here and there is never taken for a candidate's failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY
from collage.cost.engines.rpc.engine import RpcEngine
from collage.cost.engines.rpc.sessions import RpcOptions
from collage.cost.engines.rpc.tracker import Grant, Tracker
from collage.cost.measure.engine import Place, Work, Workers
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.runner import PlaceLostError, RunJob, RunResult
from collage.testing.fixtures.misbehaving import misbehaving_job
from collage.testing.fixtures.rpc_fleet import RpcFleet
from tests.cost_tests.engines.rpc.cuttable_proxy import CuttableProxy
from tests.object_cache import cache_with_objects

pytestmark = pytest.mark.fleet

CONFIG = MeasureConfig(
    repeat=3, min_repeat=2, min_repeat_sec=0.005, run_timeout_sec=4.0, memory_limit_bytes=1 << 30
)
PATIENCE_SEC = 12.0
_WAIT_SEC = 120.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunJob]:
    folder = tmp_path_factory.mktemp("jobs")
    context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=1)
    made: dict[str, RunJob] = {}

    def job(word: str) -> RunJob:
        if word not in made:
            made[word] = misbehaving_job(word, folder / word, context)
        return made[word]

    return job


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(CPU_POLICY, BuildContext(tmp_path / "cache", tmp_path / "work"), CONFIG)


def engine(tracker: Tracker, key: str, wait_sec: float = 60.0) -> RpcEngine:
    return RpcEngine(tracker, RpcOptions(key, patience_sec=PATIENCE_SEC, wait_sec=wait_sec))


class Through(Tracker):
    """A tracker whose servers are reached through a line that can be cut."""

    def __init__(self, tracker: Tracker, proxy: CuttableProxy) -> None:
        host, _, port = tracker.address.rpartition(":")
        super().__init__(host, int(port))
        self._proxy = proxy

    def request(self, *arguments: object, **more: object) -> Grant | None:
        grant = super().request(*arguments, **more)  # type: ignore[arg-type]
        if grant is None:
            return None
        return replace(grant, port=self._proxy.port_for(grant.host, grant.port))


@contextmanager
def later(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    timer = threading.Timer(seconds, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_line_that_is_cut_during_an_upload_says_nothing_of_the_candidate(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    with (
        CuttableProxy() as proxy,
        engine(Through(fleet.tracker, proxy), fleet.key).open(work) as workers,
    ):
        runner = workers.places[0].runner
        assert runner.run(jobs("right")).cost.is_valid
        proxy.cut_after(4096)
        with pytest.raises(PlaceLostError):
            runner.run(jobs("right"))
        fleet.wait_for(2, free=2)
        runner = workers.places[0].runner
        assert runner.run(jobs("right")).cost.is_valid


def test_whoever_kills_what_serves_is_no_candidate(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    with engine(fleet.tracker, fleet.key).open(work) as workers:
        runner = workers.places[0].runner
        runner.warm_up()
        with later(1.0, fleet.sessions()[1].kill), pytest.raises(PlaceLostError, match="SIGKILL"):
            runner.run(jobs("hang"))
        fleet.wait_for(2, free=2)
        assert workers.places[0].runner.run(jobs("right")).cost.is_valid


@pytest.mark.slow
def test_whoever_kills_what_the_server_knows_is_no_candidate_either(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    """TVM's server serves no more after that: it is started again."""
    with (
        RpcFleet(1, "victim", fleet.tracker) as one,
        engine(one.tracker, one.key).open(work) as workers,
    ):
        runner = workers.places[0].runner
        runner.warm_up()
        with later(1.0, one.sessions()[0].kill), pytest.raises(PlaceLostError):
            runner.run(jobs("hang"))
        one.kill_server(0)
        one.wait_for(0)
        one.add_server()
        assert workers.places[0].runner.run(jobs("right")).cost.is_valid


@pytest.mark.slow
def test_a_session_that_is_stopped_is_given_up(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    with (
        RpcFleet(1, "stopped", fleet.tracker) as one,
        engine(one.tracker, one.key).open(work) as workers,
    ):
        runner = workers.places[0].runner
        runner.warm_up()
        processes = one.processes(0)
        try:
            begin = time.monotonic()
            for process in processes:
                process.suspend()
            with pytest.raises(PlaceLostError, match="no answer within"):
                runner.run(jobs("right"))
            assert time.monotonic() - begin < 3 * (PATIENCE_SEC + CONFIG.run_timeout_sec)
        finally:
            for process in reversed(processes):
                process.resume()
        one.wait_for(1, free=1)
        assert runner.run(jobs("right")).cost.is_valid


def test_a_candidate_that_ends_its_session_is_to_blame_and_the_server_goes_on(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    with engine(fleet.tracker, fleet.key).open(work) as workers:
        runner = workers.places[0].runner
        for word, status in (
            ("null", CostStatus.CRASHED),
            ("exit", CostStatus.CRASHED),
            ("hang", CostStatus.TIMED_OUT),
        ):
            assert runner.run(jobs(word)).cost.status is status
    fleet.wait_for(2, free=2)


def test_work_of_a_server_that_dies_is_done_elsewhere_once_and_it_may_come_back(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    done: list[RunResult] = []
    lost: list[str] = []
    aside: list[str] = []
    right = jobs("right")
    both, killed = threading.Barrier(3, timeout=_WAIT_SEC), threading.Event()
    with engine(fleet.tracker, fleet.key).open(work) as workers:
        pool = RunnerPool(
            workers.places, lambda place, reason: lost.append(reason), lambda: workers.places
        )

        def task(place: Place) -> None:
            place.runner.warm_up()
            if not killed.is_set():
                both.wait()
                killed.wait(_WAIT_SEC)
            done.append(place.runner.run(right))

        try:
            for _ in range(6):
                pool.submit(task, aside.append)
            both.wait()
            first, second = (n for n, one in enumerate(fleet.servers) if one.poll() is None)
            fleet.kill_server(first)
            killed.set()
            pool.wait()
            assert len(done) == 6 and all(result.cost.is_valid for result in done)
            assert lost and not aside
            fleet.add_server()
            fleet.kill_server(second)
            for _ in range(2):
                pool.submit(task, aside.append)
            pool.wait()
            assert len(done) == 8 and all(result.cost.is_valid for result in done)
            assert not aside
            fleet.add_server()
        finally:
            killed.set()
            both.abort()
            pool.close()
            workers.close()


def test_a_tracker_that_is_gone_is_one_clear_error(
    work: Work, jobs: Callable[[str], RunJob]
) -> None:
    with RpcFleet(1, "lonely") as one:
        options = RpcOptions(one.key, patience_sec=PATIENCE_SEC, wait_sec=1.0)
        opened: Workers = RpcEngine(one.tracker, options).open(work)
        one.end_tracker()
        with opened as workers:
            pool = RunnerPool(workers.places, lambda place, reason: None, lambda: workers.places)
            try:
                pool.submit(lambda place: place.runner.run(jobs("right")) and None)
                with pytest.raises(
                    MeasurementError, match=f"no RPC tracker at {one.tracker.address}"
                ):
                    pool.wait()
            finally:
                pool.close()
        with pytest.raises(MeasurementError, match="no RPC tracker at"):
            engine(one.tracker, one.key, wait_sec=1.0).open(work)


def test_keys_that_there_are_are_named(fleet: RpcFleet, work: Work) -> None:
    for key in ("", "other"):
        with pytest.raises(MeasurementError, match=r"has board \(2\)"):
            engine(fleet.tracker, key, wait_sec=0.0).open(work)


def test_servers_are_listed_with_what_speaks_against_them(
    fleet: RpcFleet, work: Work, jobs: Callable[[str], RunJob]
) -> None:
    here = CPU_POLICY.detect()
    named = engine(fleet.tracker, fleet.key)
    with named.open(work) as workers:
        assert workers.device == here
        assert workers.places[0].runner.run(jobs("right")).cost.is_valid
        infos = named.inspect(CPU_POLICY)
    assert len(infos) == 2
    (free,), (busy,) = ([i for i in infos if i.usable is usable] for usable in (True, False))
    assert free.device == here and free.load is not None
    assert "somebody else uses it" in busy.reason
