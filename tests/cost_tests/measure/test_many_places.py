"""A measurer with several places: all of them work, each key is recorded once, losses are mended.

The workers are simulated; the search's side of it is real.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import MeasurementError
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase, KeyMaker, RecordKey
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, Device
from collage.cost.measure.engine import Place, Work, Workers
from collage.cost.measure.feed import Request
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import PlaceLostError, RunJob, Runner, RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.progress import ProgressEvent
from collage.cost.workload.workload import Workload
from collage.testing.fixtures.simulated import Delays, SimulatedEngine
from tests.cost_tests.conftest import tvm_workload

_ROWS = 1000
"""Of a workload, and as many more as it costs seconds; what places are compared by has others."""
_MOST_SEC = 500
DEVICE = Device("cpu", "a simulated one", 4, "0123")


class Rows(CostModel):
    """A workload costs as many seconds as its first extent is over a thousand."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        rows = [w.inputs[0].shape[0] for w in workloads]
        assert all(row is not None for row in rows)
        return [Cost.of_samples([float(abs(int(row or 0) - _ROWS))]) for row in rows]


class Watched(Runner):
    """Another runner, and who looks on."""

    def __init__(self, inner: Runner, look: Callable[[int], None]) -> None:
        self._inner, self._look = inner, look

    def run(self, job: RunJob) -> RunResult:
        result = self._inner.run(job)
        rows = int(result.cost.median_sec)
        if rows <= _MOST_SEC:
            self._look(rows)
        return result

    def close(self) -> None:
        self._inner.close()


class WatchedEngine(SimulatedEngine):
    def __init__(self, places: int, look: Callable[[str, int], None], run_sec: float) -> None:
        super().__init__(Rows(), lambda w, t: Delays(0.01, run_sec), DEVICE, places, places)
        self._look = look

    def open(self, work: Work) -> Workers:
        workers = super().open(work)
        workers.places = [
            Place(place.name, Watched(place.runner, lambda rows, n=place.name: self._look(n, rows)))  # type: ignore[misc]
            for place in workers.places
        ]
        return workers


class Search:
    """Some questions, and a measurer for them."""

    def __init__(
        self,
        context: BuildContext,
        target: BackendTarget,
        places: int,
        look: Callable[[str, int], None] = lambda name, rows: None,
        *,
        run_sec: float = 0.01,
        deadline: Deadline = NEVER,
        log: Path | None = None,
        engine: SimulatedEngine | None = None,
    ) -> None:
        self.stats, self.events = MeasureStats(), list[ProgressEvent]()
        self.database = JsonLinesDatabase(log)
        self.lookup = RecordLookup(self.database, self.stats)
        work = Work(CPU_POLICY, context, MeasureConfig(), deadline=deadline)
        self.measurer = Measurer(
            *(engine or WatchedEngine(places, look, run_sec), work),
            *(self.lookup, self.stats, self.events.append),
        )
        self._keys, self._target = KeyMaker(context, MeasureConfig(), DEVICE), target

    def ask(self, rows: Sequence[int]) -> dict[RecordKey, Question]:
        found: dict[RecordKey, Question] = {}
        for row in rows:
            workload = tvm_workload(_ROWS + row, 3)
            found[self._keys.partition(workload, self._target)] = (workload, self._target)
        return found

    def measure(self, rows: Sequence[int]) -> list[Cost]:
        questions = self.ask(rows)
        try:
            self.measurer.measure(questions)
        finally:
            self.measurer.close()
        return self.lookup.costs(list(questions))


def test_every_key_is_recorded_once_with_its_own_cost(
    context: BuildContext, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    search = Search(context, tvm_target, 7, log=log)
    rows = random.sample(range(1, _MOST_SEC), 60)
    assert [cost.median_sec for cost in search.measure(rows)] == rows
    assert len(log.read_text().splitlines()) == search.stats.measured == 60
    assert search.events[-1].done == search.events[-1].total == 60
    assert not list(context.work_dir.glob("measure-*"))


@pytest.mark.parametrize(
    ("places", "builders", "busy"), [(1, 8, 1), (4, 2, 4), (4, 6, 6), (4, 64, 8)]
)
def test_so_many_keep_builders_and_places_busy(
    context: BuildContext, places: int, builders: int, busy: int
) -> None:
    engine = SimulatedEngine(Rows(), lambda w, t: Delays(0.01, 0.01), DEVICE, places, builders)
    lookup = RecordLookup(JsonLinesDatabase(), MeasureStats())
    work = Work(CPU_POLICY, context, MeasureConfig())
    measurer = Measurer(engine, work, lookup, MeasureStats(), lambda event: None)
    assert measurer.at_once == busy
    measurer.close()


def test_all_places_work_at_once(context: BuildContext, tvm_target: BackendTarget) -> None:
    together = threading.Barrier(5, timeout=60.0)
    seen: set[str] = set()

    def look(name: str, rows: int) -> None:
        if name not in seen:
            seen.add(name)
            together.wait()  # Breaks unless all places come here.

    search = Search(context, tvm_target, 5, look)
    assert all(cost.is_valid for cost in search.measure(range(1, 31)))
    assert len(seen) == 5


def test_lost_places_lose_no_record_and_a_deadly_candidate_no_search(
    context: BuildContext, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"

    def look(name: str, rows: int) -> None:
        if rows == 13 or name == "simulated:4":
            raise PlaceLostError("the connection was closed")

    search = Search(context, tvm_target, 6, look, log=log)
    costs = search.measure(range(1, 41))
    deadly = costs[12]
    assert deadly.status is CostStatus.RUN_FAILED and "2 workers were lost" in deadly.reason
    assert [cost.median_sec for cost in costs if cost is not deadly] == [
        float(row) for row in range(1, 41) if row != 13
    ]
    assert len(log.read_text().splitlines()) == search.stats.measured == 39
    told = [event.message for event in search.events if event.stage == "lost"]
    assert sum("is left out" in text for text in told) in (2, 3)
    assert sum("relu 1013x3" in text and "set aside" in text for text in told) == 1
    # The same search does not ask for it again; another one does.
    questions = search.ask([13])
    assert not search.lookup.misses(list(questions), list(questions.values()))
    other = RecordLookup(search.database, MeasureStats())
    assert other.misses(list(questions), list(questions.values()))


def test_without_any_place_left_the_search_ends_with_what_was_measured(
    context: BuildContext, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    left = threading.Semaphore(10)

    def look(name: str, rows: int) -> None:
        if not left.acquire(blocking=False):
            raise PlaceLostError("the power is off")

    search = Search(context, tvm_target, 1, look, log=log)
    with pytest.raises(MeasurementError, match="no worker is left"):
        search.measure(range(1, 41))
    assert len(log.read_text().splitlines()) == 10
    assert not list(context.work_dir.glob("measure-*"))


def test_the_time_budget_ends_all_places(context: BuildContext, tvm_target: BackendTarget) -> None:
    done: list[int] = []
    deadline = Deadline(lambda: -math.inf if len(done) >= 20 else math.inf)
    search = Search(
        context, tvm_target, 8, lambda name, rows: done.append(rows), run_sec=0.2, deadline=deadline
    )
    begin = time.monotonic()
    costs = search.measure(range(1, 201))
    assert time.monotonic() - begin < 30.0, "200 take five seconds, and nobody waits for hours"
    measured = sum(cost.is_valid for cost in costs)
    assert 12 <= measured <= 40 and measured == search.stats.measured
    assert not list(context.work_dir.glob("measure-*"))


class Wishes:
    """Wants one workload after the other, each once the last one is known, and fills what room
    there is with others; or has had enough."""

    def __init__(self, search: Search, chain: Sequence[int], others: Sequence[int]) -> None:
        self._search, self._chain, self._others = search, list(chain), list(others)
        self._handed: set[RecordKey] = set()
        self.rooms: list[int] = []

    def __call__(self, room: int) -> Request | None:
        self.rooms.append(room)
        known = {int(r.cost.median_sec) for r in self._search.database.records()}
        while self._chain and self._chain[0] in known:
            self._chain.pop(0)
        if not self._chain:
            return None
        urgent = self._search.ask(self._chain[:1])
        others, self._others = self._others[:room], self._others[room:]
        fresh = {key: q for key, q in urgent.items() if key not in self._handed}
        self._handed |= fresh.keys()
        return Request(fresh | self._search.ask(others), urgent.keys())


def test_what_is_wanted_next_is_asked_as_soon_as_somebody_would_be_idle(
    context: BuildContext, tvm_target: BackendTarget
) -> None:
    search = Search(context, tvm_target, 3, run_sec=0.05)
    wishes = Wishes(search, range(1, 9), range(100, 200))
    first = wishes(3)
    assert first is not None
    try:
        search.measurer.measure(first.questions, wishes, [tvm_target])
    finally:
        search.measurer.close()
    measured = [int(r.cost.median_sec) for r in search.database.records()]
    assert [row for row in measured if row < 100] == list(range(1, 9))
    # Three places time for 0.05 s each; those of the chain come one after the other.
    assert 8 <= len(measured) - 8 <= 40 and len(set(measured)) == len(measured)
    assert all(room > 0 for room in wishes.rooms)
    assert search.stats.measured == len(measured)
    assert not list(context.work_dir.glob("measure-*"))


def test_nobody_waits_for_what_is_no_longer_wanted(
    context: BuildContext, tvm_target: BackendTarget
) -> None:
    slow = threading.Event()

    def look(name: str, rows: int) -> None:
        if rows >= 100:
            slow.set()

    class Slow(WatchedEngine):
        def __init__(self) -> None:
            SimulatedEngine.__init__(
                self,
                Rows(),
                lambda w, t: Delays(0.01, 60.0 if w.inputs[0].shape[0] in (1100, 1101) else 0.2),
                DEVICE,
                3,
                3,
            )
            self._look = look

    search = Search(context, tvm_target, 3, engine=Slow())
    wishes = Wishes(search, [1], [100, 101])
    first = wishes(3)
    assert first is not None and len(first.questions) == 3
    begin = time.monotonic()
    try:
        search.measurer.measure(first.questions, wishes, [tvm_target])
        assert time.monotonic() - begin < 30.0, "two take a minute each"
        assert not slow.is_set() and len(list(search.database.records())) == 1
        # Whoever was given up goes on with what is asked next.
        search.measurer.measure(search.ask(range(2, 12)))
    finally:
        search.measurer.close()
    assert len(list(search.database.records())) == 11
