"""What a search wants, as questions to many devices: busy as long as there are any, and one answer.

Devices are simulated; the search, the log and what lies between them are real.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget, BuildContext
from collage.candidate_costs import WorkloadCosts
from collage.cost import MeasuredCostModel, TableCostModel
from collage.cost.base import Answer, Asking, Cost, CostModel
from collage.cost.database import Database, JsonLinesDatabase
from collage.cost.deadline import Deadline
from collage.cost.device import CPU_POLICY, Device
from collage.cost.workload.describe import operator_calls
from collage.cost.workload.workload import Workload
from collage.pipeline.covers import Covers, find_covers
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.lazy_search import Expect, Peek, Wanted
from collage.targets import resolve_targets
from collage.testing import graph
from collage.testing.fixtures.simulated import Delays, SimulatedEngine
from tests.object_cache import cache_with_objects

DEVICE = Device("cpu", "a simulated one", 4, "0123")
TARGETS = ("llvm", "onednn", "openblas")


class Drawn(CostModel):
    """Costs that nobody foresees, always the same; no two covers cost the same. More operators take
    longer, so that a search has to choose."""

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [
            Cost.of_samples(
                [len(list(operator_calls(w.module))) * (1.0 + _draw(w.key + t.name)) * 1e-5]
            )
            for w, t in zip(workloads, targets, strict=True)
        ]


_SALT = 0


def _draw(text: str) -> float:
    return int(hashlib.sha256(f"{_SALT} {text}".encode()).hexdigest()[:8], 16) / 2**32


def network(layers: int) -> tuple[tvm.IRModule, DataflowGraph]:
    """Products of different widths, each with an activation."""

    def body(emit, x, *weights):  # type: ignore[no-untyped-def]
        for weight in weights:
            x = emit(op.nn.relu(emit(op.matmul(x, weight))))
        return op.exp(x)

    widths = [8 + 4 * n for n in range(layers + 1)]
    mod = graph([(8, widths[0]), *itertools.pairwise(widths)], body)
    return mod, DataflowGraph.from_function(mod["main"])


def measured(
    folder: Path,
    places: int,
    database: Database | None = None,
    *,
    replay_only: bool = False,
    deadline: Deadline | None = None,
) -> MeasuredCostModel:
    engine = SimulatedEngine(
        Drawn(),
        lambda w, t: Delays(0.02 * _draw(w.key), 0.02 * _draw(t.name + w.key)),
        DEVICE,
        places,
        2 * places,
    )
    more = {} if deadline is None else {"deadline": deadline}
    return MeasuredCostModel(
        BuildContext(cache_with_objects(folder), folder / "work", num_threads=1),
        database,
        engine=engine,
        device=DEVICE,
        replay_only=replay_only,
        **more,
    )


def find(model: MeasuredCostModel, layers: int = 6) -> tuple[Covers, WorkloadCosts]:
    mod, dataflow = network(layers)
    costs = WorkloadCosts(mod, dataflow, model)
    return find_covers(dataflow, resolve_targets(list(TARGETS)), "search", costs), costs


@pytest.mark.parametrize("places", [2, 7, 40])
def test_the_answer_is_the_same_with_one_place_and_with_many(tmp_path: Path, places: int) -> None:
    with measured(tmp_path, 1) as model:
        alone, costs_alone = find(model)
        least = model.stats.measured
    with measured(tmp_path, places) as model:
        many, costs = find(model)
        assert model.stats.measured >= least
    assert alone.result is not None and many.result is not None
    assert many.result.complete and many.result == alone.result
    assert costs.costs == costs_alone.costs and costs.num_unmeasured == 0
    for candidate, cost in costs.costs.items():
        if not candidate.inline:
            (true,) = Drawn().estimate([costs.workload(candidate)], [candidate.target])
            assert cost.median_sec == true.median_sec


def test_the_next_search_with_that_log_measures_nothing_of_its_answer(tmp_path: Path) -> None:
    log = JsonLinesDatabase(tmp_path / "log.jsonl")
    with measured(tmp_path, 9, log) as model:
        first, _ = find(model)
    lines = len((tmp_path / "log.jsonl").read_text().splitlines())
    assert lines == model.stats.measured == len(list(log.records()))
    with measured(tmp_path, 9, JsonLinesDatabase(tmp_path / "log.jsonl")) as model:
        again, _ = find(model)
        assert model.stats.from_log > 0
    assert first.result is not None and again.result is not None
    assert again.result.partitioning == first.result.partitioning


def test_a_search_that_is_stopped_keeps_what_many_measured(tmp_path: Path) -> None:
    log = JsonLinesDatabase()
    deadline = Deadline(lambda: -math.inf if len(list(log.records())) >= 12 else math.inf)
    with measured(tmp_path, 4, log, deadline=deadline) as model:
        covers, costs = find(model)
    assert covers.result is not None and not covers.result.complete
    assert covers.result.evaluated > 0 and costs.num_unmeasured > 0
    assert 12 <= model.stats.measured < 30


class Many(TableCostModel):
    """Knows nothing, and is asked with room for four workloads; then it gives two answers."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[list[str]] = []

    def at_once(self, target: object) -> int:
        return 4

    def stream(self, targets: Sequence[BackendTarget], ask: Asking) -> None:
        first = ask([], 4)
        assert first is not None
        answers = [Answer(w, t, Cost.of_samples([1e-6])) for w, t in first.urgent]
        second = ask(answers, 1)
        assert second is not None
        for each in (first, second):
            self.asked.append([w.describe() for w, _ in (*each.urgent, *each.others)])

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [Cost.of_samples([1e-6])] * len(workloads)


def test_equal_workloads_are_asked_about_once_and_no_more_than_there_is_room_for() -> None:
    mod = graph(
        [(8, 8)],
        lambda emit, x: op.exp(emit(op.nn.relu(emit(op.exp(emit(op.nn.relu(x))))))),
    )
    dataflow = DataflowGraph.from_function(mod["main"])
    targets = resolve_targets(["llvm"])
    chains = [
        Candidate(((1 << length) - 1) << first, targets.native)
        for length in (1, 2, 3)
        for first in range(5 - length)
    ]
    model = Many()
    costs = WorkloadCosts(mod, dataflow, model)

    known: set[Candidate] = set()

    def wanted(peek: Peek, expect: Expect) -> Wanted:
        known.update(c for c in chains if peek(c) is not None)
        return Wanted([c for c in chains[:3] if c not in known], chains[3:])

    assert costs.stream(wanted)
    assert not model.asked, "nothing is known of devices yet"
    costs.ask_overheads(targets.native)
    assert costs.stream(wanted)
    # Four of one operator and three of two are four workloads; those of three are two more.
    assert sorted(model.asked[0]) == sorted(["relu 8x8", "exp 8x8", *model.asked[0][2:]])
    assert len(set(model.asked[0])) == 4
    assert len(model.asked[1]) == 1 and not set(model.asked[1]) & set(model.asked[0])
    assert known == set(chains[:4])
    assert costs.num_workloads == 0, "only what the search asks for is one of its workloads"


class SecondThoughts(CostModel):
    """Times everything once more, as where a place was left out."""

    def __init__(self) -> None:
        self.told: list[Answer] = []

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return Drawn().estimate(workloads, targets)

    def at_once(self, target: object) -> int:
        return 4

    def stream(self, targets: Sequence[BackendTarget], ask: Asking) -> None:
        answers: list[Answer] = []
        while (asked := ask(answers, 4)) is not None:
            questions = {*asked.urgent, *asked.others}
            answers = [
                Answer(w, t, Cost.of_samples([_draw(t.name + w.key) * 1e-5])) for w, t in questions
            ]
            self.told += answers


def test_what_was_timed_once_more_is_searched_with_the_later_times() -> None:
    mod, dataflow = network(6)
    targets, model = resolve_targets(list(TARGETS)), SecondThoughts()
    costs, expected = WorkloadCosts(mod, dataflow, model), WorkloadCosts(mod, dataflow, Drawn())
    found = find_covers(dataflow, targets, "search", costs)
    assert model.told
    assert found.result == find_covers(dataflow, targets, "search", expected).result
    assert costs.costs == expected.costs


@pytest.mark.parametrize("places", [2, 40])
def test_a_strict_replay_needs_no_more_than_the_log_of_many_places_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    """It asks for one thing after the other, in whatever order many places gave their answers."""
    for salt, layers in itertools.product(range(4), (4, 9)):
        log = tmp_path / f"{salt} {layers}.jsonl"
        monkeypatch.setattr(f"{__name__}._SALT", salt)
        with measured(tmp_path, places, JsonLinesDatabase(log)) as model:
            first, costs = find(model, layers)
        with measured(tmp_path, 1, JsonLinesDatabase(log), replay_only=True) as model:
            again, replayed = find(model, layers)
        assert first.result is not None and again.result is not None
        assert again.result == first.result
        assert replayed.costs == costs.costs
        assert replayed.assumed_flops_per_sec == costs.assumed_flops_per_sec


def test_a_log_of_many_places_replays_to_the_same_module_and_report(tmp_path: Path) -> None:
    mod, _ = network(5)
    log = tmp_path / "log.jsonl"
    device = CPU_POLICY.detect()
    engine = SimulatedEngine(
        Drawn(), lambda w, t: Delays(0.02 * _draw(w.key), 0.02 * _draw(t.name)), device, 6, 12
    )
    first = collage.optimize(mod, list(TARGETS), workers=engine, log=log)
    again = collage.optimize(mod, list(TARGETS), log=log, replay=True)
    tvm.ir.assert_structural_equal(again.module, first.module, map_free_vars=True)
    assert again.partitioning == first.partitioning
    for part in ("nodes", "partitions", "alternatives", "rejections", "end_to_end"):
        assert getattr(again.report, part) == getattr(first.report, part), part
    effort, before = again.report.search, first.report.search
    for part in ("candidates", "distinct_workloads", "evaluated", "unmeasured", "sum_sec"):
        assert getattr(effort, part) == getattr(before, part), part
    assert effort.measured == before.from_log == 0 and before.measured > before.distinct_workloads
