"""Places that are slow or become slow are left out of a measurement, and said to be.

Builder and runners make up what they answer, so that nothing here depends on the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database.jsonl import JsonLinesDatabase as Database
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import RecordKey
from collage.cost.device import CUDA_POLICY, Device, DevicePolicy
from collage.cost.measure.builder import (
    BuildDone,
    Builder,
    BuildJob,
    BuildResult,
    More,
    nobody_waits,
    nothing_more,
)
from collage.cost.measure.engine import Engine, Place, Work, WorkerInfo, Workers
from collage.cost.measure.places.calibration import Calibration
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import PlaceLostError, RunJob, Runner, RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.whole_models.model_timer import ModelTimer
from collage.cost.progress import ProgressCallback, ProgressEvent
from tests.cost_tests.conftest import ToyTarget, toy_workload

GPU = Device("cuda", "toy", 1, "sm_90", "1")
REFERENCES = {"memory": 2e-3, "compute": 1e-3, "launch": 2e-6}
USUAL_SEC = 1e-4
FEWEST_ROUNDS = 5
SLOWER = 1.25


class Simulated(Runner):
    """Takes so many times as long as usual, by what it says: nothing is run."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.timed: list[str] = []
        self.rounds = 0
        self.after: Callable[[], None] = lambda: None
        self.disturbed = ""
        self.lost = False

    def run(self, job: RunJob) -> RunResult:
        assert job.library.exists(), "what is timed has been built"
        if self.lost:
            raise PlaceLostError("its machine is gone")
        name = job.sample.name
        if name in REFERENCES:
            self.rounds += name == "memory"
            return RunResult(Cost.of_samples([REFERENCES[name] * self.factor] * 3))
        self.timed.append(name)
        result = RunResult(Cost.of_samples([USUAL_SEC * self.factor] * 3))
        time.sleep(0.02)  # So that every place gets something to do.
        self.after()
        return result

    def others(self) -> str:
        return self.disturbed

    def close(self) -> None:
        pass


class Files(Builder):
    """Builds nothing but the file that is asked for."""

    def build(
        self,
        jobs: Sequence[BuildJob],
        done: BuildDone = nobody_waits,
        more: More = nothing_more,
    ) -> list[BuildResult]:
        results: list[BuildResult] = []
        for index, job in enumerate(chain(jobs, iter(more, None))):
            job.folder.mkdir(parents=True)
            library = RunJob.in_folder(job.folder).library
            library.write_bytes(b"")
            results.append(BuildResult(CostStatus.VALID, library=library))
            done(index, results[-1])
        return results

    def close(self) -> None:
        pass


class SimulatedWorkers(Workers):
    def __init__(self, runners: Sequence[Runner]) -> None:
        self.device, self.builds_beside = GPU, True
        self.places = [Place(f"gpu {i}", runner) for i, runner in enumerate(runners)]

    @property
    def parallel_builds(self) -> int:
        return 2

    def builder(self, plugins: Sequence[str]) -> Builder:
        return Files()

    def timer(self, progress: ProgressCallback) -> ModelTimer:
        raise NotImplementedError


class SimulatedEngine(Engine):
    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners

    def open(self, work: Work) -> Workers:
        return SimulatedWorkers(self._runners)

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        return [WorkerInfo(f"gpu {i}", "nowhere", GPU) for i, _ in enumerate(self._runners)]


class Search:
    def __init__(
        self, context: BuildContext, toy: ToyTarget, runners: Sequence[Runner], path: Path
    ) -> None:
        self.database, self.said = Database(path), list[str]()
        self._events, self._toy = list[ProgressEvent](), toy
        config = MeasureConfig()
        self._keys = KeyMaker(context, config, GPU)
        stats = MeasureStats()
        lookup = RecordLookup(self.database, stats)
        work = Work(CUDA_POLICY, context, config, 2)
        plugins = ["tests.cost_tests.toy_backend:ToyBackend"]
        engine = SimulatedEngine(runners)
        self.measurer = Measurer(engine, work, lookup, stats, self._keep_said, plugins)

    def _keep_said(self, event: ProgressEvent) -> None:
        if event.stage in ("places", "lost"):
            self.said.append(event.message)

    def measure(self, rows: Sequence[int]) -> dict[RecordKey, Question]:
        questions = [(toy_workload(n, 10), self._toy()) for n in rows]
        asked = {self._keys.partition(w, t): (w, t) for w, t in questions}
        self.measurer.measure(asked)
        return asked


@pytest.fixture
def runners() -> list[Simulated]:
    return [Simulated() for _ in range(3)]


@pytest.fixture
def search(
    context: BuildContext, toy: ToyTarget, runners: list[Simulated], tmp_path: Path
) -> Iterator[Search]:
    made = Search(context, toy, runners, tmp_path / "log.jsonl")
    yield made
    made.measurer.close()
    assert not list(context.work_dir.glob("reference-*")), "the reference set goes, too"


def seconds(search: Search) -> set[float]:
    return {round(record.cost.median_sec / USUAL_SEC, 6) for record in search.database.records()}


def test_a_slow_place_times_nothing(search: Search, runners: list[Simulated]) -> None:
    runners[1].factor = SLOWER
    asked = search.measure(range(1, 13))
    assert len(search.database) == len(asked) == 12 and seconds(search) == {1.0}
    assert runners[1].timed == [] and runners[0].timed and runners[2].timed
    (said,) = search.said
    assert said.startswith("gpu 1 is left out: takes 1.250 times as long as gpu 0 for memory")
    assert [runner.rounds for runner in runners] == [FEWEST_ROUNDS] * 3


def test_where_all_are_alike_all_work(search: Search, runners: list[Simulated]) -> None:
    runners[2].factor = 1.02
    search.measure(range(1, 13))
    assert all(runner.timed for runner in runners) and not search.said


def test_what_a_drifting_place_timed_is_timed_again_elsewhere(
    search: Search,
    runners: list[Simulated],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It drifts in the middle; the check that is due then finds it."""
    due = threading.Event()
    monkeypatch.setattr(
        "collage.cost.measure.places.calibration.Calibration.is_due",
        lambda self, places: not self._usual or due.is_set(),
    )

    def throttle() -> None:
        runners[1].factor = SLOWER
        if len(runners[1].timed) == 4:
            due.set()

    runners[1].after = throttle
    asked = search.measure(range(1, 41))
    assert seconds(search) == {1.0} and len(search.database) == len(asked)
    (said,) = search.said
    assert said.startswith("gpu 1 is left out: has become 1.250 times as slow for memory")
    assert runners[0].rounds > FEWEST_ROUNDS + 1, "checks go on between the others"
    spoilt = len(runners[1].timed) - 1  # The first was timed before it began to throttle.
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    again = len(lines) - len(asked)
    assert again == len(runners[1].timed), "all since the last good check, and nothing else"
    assert sum(str(USUAL_SEC * SLOWER) in line for line in lines) == spoilt
    assert {r.cost.median_sec for r in Database(tmp_path / "log.jsonl").records()} == {USUAL_SEC}


def test_a_shared_place_is_left_out_or_said(search: Search, runners: list[Simulated]) -> None:
    runners[0].disturbed = "others compute on it 61 % of the time"
    search.measure(range(1, 10))
    assert runners[0].timed == [] and runners[1].timed and runners[2].timed
    (said,) = search.said
    assert said == "gpu 0 is left out: cannot be compared: others compute on it 61 % of the time"


def test_what_the_search_computes_itself_is_not_taken_for_others(
    context: BuildContext, toy: ToyTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuners on the first GPU were, and the search went on with the second one alone."""
    asked = list[str]()

    class Tuning(Simulated):
        def others(self) -> str:
            asked.append("others compute on it 61 % of the time")
            return asked[-1] if len(asked) > 1 else ""

    monkeypatch.setattr(SimulatedWorkers, "tunes", True)
    runners = [Tuning(), Simulated()]
    search = Search(context, toy, runners, tmp_path / "log.jsonl")
    try:
        search.measure(range(1, 10))
    finally:
        search.measurer.close()
    assert search.said == [] and len(asked) == 1
    assert runners[0].timed and runners[1].timed


def test_one_place_alone_is_not_compared_but_said_to_be_shared(
    context: BuildContext, toy: ToyTarget, tmp_path: Path
) -> None:
    runner = Simulated()
    runner.disturbed = "others compute on it 61 % of the time"
    search = Search(context, toy, [runner], tmp_path / "log.jsonl")
    try:
        search.measure(range(1, 4))
    finally:
        search.measurer.close()
    assert len(runner.timed) == 3 and runner.rounds == 0
    assert search.said == ["gpu 0: others compute on it 61 % of the time"]


def test_a_place_that_is_lost_while_it_is_compared_stops_nobody(
    search: Search, runners: list[Simulated]
) -> None:
    runners[2].lost = True
    asked = search.measure(range(1, 7))
    assert len(search.database) == len(asked) and seconds(search) == {1.0}
    assert search.said == ["gpu 2 is left out: its machine is gone"]


def test_the_last_place_is_not_left_out(search: Search, runners: list[Simulated]) -> None:
    for runner in runners:
        runner.disturbed = "others compute on it 61 % of the time"
    asked = search.measure(range(1, 7))
    assert len(search.database) == len(asked)
    assert len(search.said) == 3 and len(runners[0].timed) == 6
    assert search.said[-1] == "gpu 0 cannot be compared: others compute on it 61 % of the time"


def test_a_place_that_was_left_out_goes_on_where_all_others_are_lost(
    search: Search, runners: list[Simulated]
) -> None:
    """A search ended there, with a place at hand."""
    runners[1].factor = SLOWER

    def go() -> None:
        runners[0].lost = runners[2].lost = True

    runners[0].after = runners[2].after = go
    asked = search.measure(range(1, 13))
    # A candidate that both were lost with is set aside.
    assert len(asked) - 1 <= len(search.database) <= len(asked)
    assert len(runners[1].timed) >= len(asked) - 3
    assert any(said.startswith("gpu 1 goes on alone") for said in search.said), search.said


def test_who_comes_in_the_middle_of_a_check_is_compared_before_it_times_anything() -> None:
    runners = {name: Simulated() for name in "abc"}
    places = [Place(name, runners[name]) for name in "ab"]
    order: list[str] = []

    def reference(place: Place) -> dict[str, float | str]:
        order.append(f"compare {place.name}")
        time.sleep(0.05)
        if order.count("compare a") == 3 and len(places) == 2:
            places.append(Place("c", runners["c"]))
            pool._admit(places)  # As a wait does, twice a second.
        return {"memory": 1e-3}

    left_out: list[str] = []
    pool = RunnerPool(places, lambda place, why: left_out.append(why), lambda: places)
    pool.compare(Calibration(0.03), reference, left_out.append)
    for _ in range(6):
        pool.submit(lambda place: order.append(f"time {place.name}"))
    pool.wait()
    pool.close()
    assert not left_out
    first = order.index("time c") if "time c" in order else len(order)
    assert order[:first].count("compare c") == FEWEST_ROUNDS
    assert order.count("compare c") == FEWEST_ROUNDS
    assert sum(step.startswith("time") for step in order) == 6
