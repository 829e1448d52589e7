"""Whole partitionings against each other: compiled at once, one that fails is out and says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext, TargetSet
from collage.backends.contract.errors import MeasurementError
from collage.backends.contract.registry import backend_names, get_backend, register_backend
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.deadline import Deadline
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import sample_of
from collage.end_to_end import Contender, Evaluation, MeasuredComparison, best
from collage.end_to_end.inside import seconds_inside
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import single_backend
from tests.cost_tests.support import random_weight
from tests.cost_tests.toy_backend import ToyBackend
from tests.object_cache import cache_with_objects

CONFIG = MeasureConfig(repeat=2, min_repeat=1, min_repeat_sec=0.001, warmup_sec=0.001)
INPUT = np.random.default_rng(3).standard_normal((4, 8)).astype("float32")


@pytest.fixture
def model() -> tvm.IRModule:
    """relu(x @ w + b)"""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.matmul(x, random_weight(rng, 8, 16)))
            y = builder.emit(op.add(y, random_weight(rng, 16)))
            out = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


def target(name: str, **attributes: str) -> BackendTarget:
    options = get_backend(name).parse_options(attributes)
    return BackendTarget(name, tvm.target.Target("llvm"), options)


class Race:
    """A comparison over TVM, OpenBLAS and the toy backend, and what it told."""

    def __init__(
        self,
        model: tvm.IRModule,
        folder: Path,
        log: Path | None,
        *,
        replay_only: bool = False,
        **toy: str,
    ) -> None:
        if "toy" not in backend_names():
            register_backend(ToyBackend())
        self.targets = TargetSet(target("tvm"), (target("openblas"), target("toy", **toy)))
        self.graph = DataflowGraph.from_function(model["main"], model)
        self.context = BuildContext(cache_with_objects(folder), folder / "work", num_threads=1)
        self.events: list[ProgressEvent] = []
        self.model = MeasuredCostModel(
            self.context,
            JsonLinesDatabase(log),
            CONFIG,
            progress=self._compiling,
            replay_only=replay_only,
        )
        self.comparison = MeasuredComparison(
            *(model, self.graph, self.targets, self.context),
            **{"model": self.model, "samples": [sample_of(model, [INPUT])]},
        )

    def _compiling(self, event: ProgressEvent) -> None:
        if event.stage == "compile":
            self.events.append(event)

    def contenders(self) -> list[Contender]:
        return [
            Contender(t.backend, single_backend(self.graph, t, self.targets.native))
            for t in self.targets
        ]

    def run(self) -> list[Evaluation]:
        contenders = self.contenders()
        # The same again under another name is not compiled again.
        contenders.append(Contender("tvm too", contenders[0].partitioning))
        with self.model:
            return self.comparison.compare(contenders)


def test_contenders_are_compiled_at_once_as_they_would_be_alone(
    model: tvm.IRModule, tmp_path: Path
) -> None:
    race = Race(model, tmp_path, None)
    evaluations = race.run()
    names = ["tvm", "openblas", "toy", "tvm too"]
    assert [evaluation.contender.name for evaluation in evaluations] == names
    assert all(evaluation.cost.is_valid for evaluation in evaluations)
    assert evaluations[3].cost == evaluations[0].cost
    told = [(e.stage, e.done, e.total) for e in race.events]
    assert told == [("compile", done, 3) for done in range(4)]
    assert {e.message for e in race.events[1:]} == {"tvm", "openblas", "toy"}
    for evaluation in evaluations[:3]:
        library = race.comparison.library(evaluation)
        place = tmp_path / evaluation.contender.name / "model.so"
        module = evaluation.module
        alone = compile_module(module, race.targets, place, race.context, cuda_graph=True)
        assert library.path.read_bytes() == place.read_bytes()
        assert library.shared_libraries == alone.shared_libraries
    assert best(evaluations) in evaluations


def test_one_that_cannot_be_compiled_is_out_and_the_others_count(
    model: tvm.IRModule, tmp_path: Path
) -> None:
    race = Race(model, tmp_path, tmp_path / "log.jsonl", build="refuse")
    tvm_alone, openblas, toy, again = race.run()
    assert toy.cost.status is CostStatus.BUILD_FAILED
    assert toy.cost.reason == "toy does not want to" and toy.largest_error is None
    assert tvm_alone.cost.is_valid and openblas.cost.is_valid and again.cost == tvm_alone.cost
    assert best([tvm_alone, openblas, toy]) in (tvm_alone, openblas)
    assert any(event.message == "toy: toy does not want to" for event in race.events)


def test_what_ran_once_still_does_when_there_is_no_time_for_it_and_others(
    model: tvm.IRModule, tmp_path: Path
) -> None:
    race = Race(model, tmp_path, None)
    first, second, _ = race.contenders()
    with race.model:
        (before,), _ = race.comparison.try_out([first])
        after, _ = race.comparison.try_out([first, second], Deadline.after(0.0))
    assert before.cost.is_valid and after[0].cost == before.cost
    assert after[1].cost.status is CostStatus.UNKNOWN


@pytest.mark.parametrize("build", ["refuse", "die"])
def test_one_that_cannot_be_compiled_is_replayed_as_such(
    model: tvm.IRModule, tmp_path: Path, build: str
) -> None:
    log = tmp_path / "log.jsonl"
    first = Race(model, tmp_path, log, build=build).run()
    assert not first[2].cost.is_valid
    for replay_only in (True, False):
        race = Race(model, tmp_path / "elsewhere", log, build=build, replay_only=replay_only)
        again = race.run()
        assert [one.cost for one in again] == [one.cost for one in first]
        assert again[2].largest_error is None
        assert race.events == [] and race.model.stats.measured == 0


def test_one_that_crashes_the_compiler_is_out_too(model: tvm.IRModule, tmp_path: Path) -> None:
    tvm_alone, _, toy, _ = Race(model, tmp_path, None, build="die").run()
    assert tvm_alone.cost.is_valid
    assert toy.cost.status is CostStatus.CRASHED and "SIGABRT" in toy.cost.reason


def test_a_single_one_that_cannot_be_compiled_says_so(model: tvm.IRModule, tmp_path: Path) -> None:
    race = Race(model, tmp_path, None, build="refuse")
    with race.model:
        evaluations = race.comparison.compare(race.contenders()[2:])
    assert [(e.done, e.total) for e in race.events] == [(0, 1), (1, 1)]
    with pytest.raises(MeasurementError, match="toy does not want to"):
        best(evaluations)


def test_what_the_log_knows_is_not_compiled(model: tvm.IRModule, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = Race(model, tmp_path, log).run()
    race = Race(model, tmp_path, log)
    again = race.run()
    assert [s.cost for s in again] == [s.cost for s in first]
    assert race.events == []
    assert [s.calls for s in again] == [s.calls for s in first]


def test_models_that_were_timed_were_taken_apart(model: tvm.IRModule, tmp_path: Path) -> None:
    race = Race(model, tmp_path, None)
    for evaluation in race.run():
        calls = [call for call in evaluation.calls if call.median_sec > 0.0]
        assert len(calls) == len(evaluation.calls) > 0
        libraries = [call for call in calls if call.symbol in ("openblas_0", "toy_0")]
        assert len(libraries) == (evaluation.contender.name in ("openblas", "toy"))
        parts = seconds_inside(evaluation.contender.partitioning, calls, lambda part: 1.0)
        assert set(parts) == set(evaluation.contender.partitioning.candidates)


def test_in_each_contest_after_the_first_one_models_are_timed_as_wholes_alone(
    model: tvm.IRModule, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    race = Race(model, tmp_path, log)
    with race.model:
        first = race.comparison.compare(race.contenders())
        again = race.comparison.compare(race.contenders()[:2])
    assert [one.calls for one in again] == [one.calls for one in first[:2]]
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert ["calls" in record for record in records] == [True] * 3 + [False] * 2
    # A replay has both contests, too, and what was seen inside.
    replay = Race(model, tmp_path / "elsewhere", log, replay_only=True)
    with replay.model:
        told = [replay.comparison.compare(replay.contenders()[:count]) for count in (3, 2)]
    assert [one.calls for one in told[1]] == [one.calls for one in again]
