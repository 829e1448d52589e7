"""The measured cost model: log first, each workload once, nothing lost, nothing measured twice."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tvm

from collage.backends.compile import compile_module
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import ReplayMissError, TargetError
from collage.backends.link import stage_libraries
from collage.cost.base import Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest.rounds import MOST_AGAIN
from collage.cost.database import JsonLinesDatabase
from collage.cost.deadline import Deadline
from collage.cost.device import CPU_POLICY
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.models.measured import MeasuredCostModel
from collage.cost.models.table import TableCostModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import sample_of
from collage.testing.fixtures.leftovers import workers
from tests.cost_tests.conftest import ToyTarget, toy_workload, tvm_workload
from tests.interrupts import interruptible


def test_costs_come_from_measuring_once_and_from_the_log_ever_after(
    context: BuildContext,
    config: MeasureConfig,
    toy: ToyTarget,
    tvm_target: BackendTarget,
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.jsonl"
    workloads = [
        toy_workload(8, 100),
        tvm_workload(8, 100),
        toy_workload(8, 100),
        toy_workload(9, 9),
        toy_workload(8, 100),
    ]
    targets = [toy(), tvm_target, toy(), toy(behaviour="null"), toy(behaviour="sleep")]
    events: list[ProgressEvent] = []
    with MeasuredCostModel(
        context, JsonLinesDatabase(log), config, progress=events.append
    ) as model:
        costs = model.estimate(workloads, targets)
        assert (model.stats.measured, model.stats.from_log, model.stats.invalid) == (4, 0, 1)
        assert model.stats.seconds_building > 0 and model.stats.seconds_running > 0
        assert model.estimate(workloads, targets) == costs
        assert (model.stats.measured, model.stats.from_log) == (4, 0)
    assert [cost.status for cost in costs[:3]] == [CostStatus.VALID] * 3
    assert costs[0] == costs[2]
    assert costs[3].status is CostStatus.CRASHED
    assert costs[4].median_sec > 10 * costs[0].median_sec, "options are part of the target"
    measured = [event for event in events if event.stage == "measure"]
    assert [(event.done, event.total) for event in measured] == [(n, 4) for n in (1, 2, 3, 4)]
    assert any("relu 8x100 on toy" in event.message for event in measured)

    before = log.read_bytes()
    children = workers()
    with MeasuredCostModel(context, JsonLinesDatabase(log), config, replay_only=True) as replay:
        assert replay.estimate(workloads, targets) == costs
        assert (replay.stats.measured, replay.stats.from_log) == (0, 4)
        assert workers() == children, "no worker is started"
    assert log.read_bytes() == before
    lines = [json.loads(line) for line in before.splitlines()]
    assert {line["backend"] for line in lines} == {"toy", "tvm"}
    assert lines[0]["versions"]["toy"] == "1.0" and lines[0]["num_threads"] == 1


def test_a_miss_in_a_strict_replay_names_the_workload(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget
) -> None:
    with MeasuredCostModel(context, JsonLinesDatabase(), config, replay_only=True) as model:
        with pytest.raises(ReplayMissError, match=r"relu 3x7.* on toy"):
            model.estimate([toy_workload(3, 7)], [toy()])
        assert model.stats.measured == 0


def test_everything_the_parent_knows_is_in_the_key(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured under other circumstances is a miss."""
    database = JsonLinesDatabase()
    workload, target = toy_workload(4, 4), toy()
    with MeasuredCostModel(context, database, config, parallel_builds=1) as model:
        model.estimate([workload], [target])

    def hits(context: BuildContext, config: MeasureConfig, target: BackendTarget) -> bool:
        with MeasuredCostModel(context, database, config, replay_only=True) as replay:
            try:
                replay.estimate([workload], [target])
            except ReplayMissError:
                return False
            return True

    another = dataclasses.replace(CPU_POLICY.detect(), name="another")
    assert hits(context, config, target)
    assert not hits(dataclasses.replace(context, num_threads=2), config, target)
    assert not hits(context, dataclasses.replace(config, repeat=4), target)
    assert not hits(context, config, toy(behaviour="sleep"))
    other_device = dataclasses.replace(
        target, device=tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    )
    assert not hits(context, config, other_device)
    for place, name, value in (
        ("collage.cost.database.keys.compiler_version", "the compiler", lambda _: "g++ 99"),
        (
            "collage.backends.contract.backend.source_digest",
            "the backend's code",
            lambda *_: "changed",
        ),
        (
            "collage.cost.device.cpu.CpuPolicy.detect",
            "the device",
            lambda _: another,
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, value)
            assert not hits(context, config, target), name
    # Where it lies on disk is no circumstance.
    assert hits(dataclasses.replace(context, work_dir=context.work_dir / "other"), config, target)


def test_without_time_left_costs_are_unknown_and_the_log_still_answers(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget
) -> None:
    database = JsonLinesDatabase()
    known, other = toy_workload(4, 4), toy_workload(5, 5)
    with MeasuredCostModel(context, database, config, parallel_builds=1) as model:
        model.estimate([known], [toy()])
    with MeasuredCostModel(context, database, config, deadline=Deadline.after(0)) as model:
        costs = model.estimate([other, known], [toy(), toy()])
        assert [cost.status for cost in costs] == [CostStatus.UNKNOWN, CostStatus.VALID]
        assert "time budget" in costs[0].reason
    assert len(database) == 1, "what is unknown is not recorded"


def test_a_backend_no_worker_could_import_is_refused(
    context: BuildContext, config: MeasureConfig
) -> None:
    from collage.backends.contract import registry
    from tests.cost_tests.toy_backend import ToyBackend

    class Local(ToyBackend):
        name = "toy_local"

    registry.register_backend(Local())
    try:
        target = BackendTarget("toy_local", tvm.target.Target("llvm"), ToyBackend.options_type())
        with (
            MeasuredCostModel(context, JsonLinesDatabase(), config) as model,
            pytest.raises(TargetError, match="top level of an importable module"),
        ):
            model.estimate([toy_workload(2, 2)], [target])
    finally:
        del registry._backends["toy_local"]


_SEARCH = """
import sys
from pathlib import Path
import tvm
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import get_backend, register_backend
from collage.cost.database import JsonLinesDatabase
from collage.cost.config import MeasureConfig
from collage.cost.models.measured import MeasuredCostModel
from tests.cost_tests.conftest import toy_workload
from tests.cost_tests.toy_backend import ToyBackend
register_backend(ToyBackend())
log, cache, work = map(Path, sys.argv[1:4])
count = int(sys.argv[4])
context = BuildContext(cache, work, num_threads=1)
config = MeasureConfig(repeat=3, min_repeat=2, min_repeat_sec=0.002, warmup_sec=0.002)
target = BackendTarget.of("toy", tvm.target.Target("llvm"))
with MeasuredCostModel(context, JsonLinesDatabase(log), config, parallel_builds=1) as model:
    workloads = [toy_workload(n, 10) for n in range(1, count + 1)]
    costs = model.estimate(workloads, [target] * count)
    print(sum(cost.is_valid for cost in costs), model.stats.measured, model.stats.from_log)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_search_goes_on_from_its_log(
    cache_dir: Path, tmp_path: Path, how: signal.Signals
) -> None:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-c", _SEARCH, str(log), str(cache_dir)]
    command += [str(tmp_path / "work"), "12"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interruptible
    ) as search:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if log.exists() and len(log.read_bytes().splitlines()) >= 3:
                break
            time.sleep(0.005)
        os.kill(search.pid, how)
        _, errors = search.communicate()
    assert search.returncode != 0
    if how is signal.SIGINT:
        assert errors.decode().strip().endswith("KeyboardInterrupt")
    kept = len(JsonLinesDatabase(log))
    assert 3 <= kept < 12, "interrupted in the middle"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12", str(12 - kept), str(kept)]


def test_two_searches_share_one_log(cache_dir: Path, tmp_path: Path) -> None:
    """Side by side they may measure a workload twice, but neither breaks the other."""
    log = tmp_path / "log.jsonl"
    searches = [
        subprocess.Popen(
            [sys.executable, "-c", _SEARCH, log, cache_dir, tmp_path / f"work{n}", "6"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    outputs = [search.communicate()[0].split() for search in searches]
    assert [output[0] for output in outputs] == ["6", "6"]
    assert not JsonLinesDatabase(log).problems and len(JsonLinesDatabase(log)) == 6


def test_whole_models_are_timed_in_alternation_and_replayed(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, tmp_path: Path
) -> None:
    workload = toy_workload(8, 100)
    mod = workload.materialize()
    samples = [sample_of(mod, workload.make_inputs(seed)) for seed in range(2)]

    def model_of(behaviour: str) -> WholeModel:
        return WholeModel(f"key {behaviour}", behaviour, (toy(behaviour=behaviour),))

    def build(behaviour: str) -> Path:
        place = tmp_path / behaviour / "model.so"
        library = compile_module(mod, [toy(behaviour=behaviour)], place, context)
        stage_libraries(library, copy=False)
        return library.path

    names = ["right", "sleep", "wrong", "abort"]
    models = [model_of(name) for name in names]
    question = EndToEndQuestion(models, samples, rounds=3)
    database = JsonLinesDatabase(tmp_path / "log.jsonl")
    with MeasuredCostModel(context, database, config, parallel_builds=1) as model:
        assert model.whole_models(models[0].targets).recorded(question) is None
        libraries = [build(name) for name in names]
        records = model.whole_models(models[0].targets).measure(question, libraries)
        assert model.stats.measured == 4
    costs = [record.cost for record in records]
    assert [cost.status for cost in costs] == [
        CostStatus.VALID,
        CostStatus.VALID,
        CostStatus.WRONG_RESULT,
        CostStatus.CRASHED,
    ]
    assert costs[0].median_sec < costs[1].median_sec and costs[1].median_sec >= 2e-3
    assert [record.rounds is None for record in records] == [False, False, True, True]
    # Beside other programs disturbed rounds are measured again: of models this fast up to so many.
    assert 3 <= len(costs[0].samples_sec) <= 3 + MOST_AGAIN
    with MeasuredCostModel(context, database, config, replay_only=True) as model:
        assert model.whole_models(models[0].targets).recorded(question) == records
        assert (model.stats.measured, model.stats.from_log) == (0, 4)
        # Who was there then answers for itself where fewer take part now.
        fewer = dataclasses.replace(question, models=models[:2])
        assert model.whole_models(models[0].targets).recorded(fewer) == records[:2]
        more = dataclasses.replace(question, models=[*models, model_of("slow")])
        with pytest.raises(ReplayMissError, match="'slow'"):
            model.whole_models(models[0].targets).recorded(more)


def test_a_log_of_an_earlier_release_replays_and_is_measured_again_otherwise(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, tmp_path: Path
) -> None:
    workload = toy_workload(8, 100)
    sample = sample_of(workload.materialize(), workload.make_inputs(0))
    models = [WholeModel(f"key {name}", name, (toy(),)) for name in ("a", "b")]
    question = EndToEndQuestion(models, [sample])
    database = JsonLinesDatabase(tmp_path / "log.jsonl")
    with MeasuredCostModel(context, database, config) as model:
        costs = [Cost.of_samples([1e-3]), Cost.of_samples([2e-3])]
        model.whole_models(models[0].targets).record_failures(
            question, costs
        )  # Under the key that they had.
        assert model.whole_models(models[0].targets).recorded(question) is None
    with MeasuredCostModel(context, database, config, replay_only=True) as model:
        records = model.whole_models(models[0].targets).recorded(question)
        assert records is not None and [record.cost for record in records] == costs
        assert model.stats.from_log == 2


def test_overheads_are_small_and_measured_once(
    context: BuildContext, config: MeasureConfig, tvm_target: BackendTarget
) -> None:
    with MeasuredCostModel(context, JsonLinesDatabase(), config, parallel_builds=1) as model:
        overheads = model.overheads(tvm_target)
        assert 0 < overheads.call_sec < 1e-3
        assert 0 <= overheads.partition_sec < 1e-4
        measured = model.stats.measured
        assert model.overheads(tvm_target) == overheads
        assert model.stats.measured == measured


def test_a_table_answers_what_it_holds(toy: ToyTarget, tvm_target: BackendTarget) -> None:
    workload = toy_workload(2, 2)
    table = TableCostModel({(workload.key, "toy"): 0.5})
    first, second = table.estimate([workload, workload], [toy(), tvm_target])
    assert (first.median_sec, first.is_valid) == (0.5, True)
    assert second.status is CostStatus.UNKNOWN and np.isinf(second.median_sec)
    assert table.asked == [(workload.key, "toy"), (workload.key, "tvm")]


def test_what_a_whole_model_found_wrong_is_wrong_from_then_on(
    context: BuildContext, config: MeasureConfig, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    log, workload = tmp_path / "log.jsonl", tvm_workload(8, 100)
    with MeasuredCostModel(context, JsonLinesDatabase(log), config) as model:
        assert model.estimate([workload], [tvm_target])[0].is_valid
        model.condemn(workload, tvm_target, "off by a half")
    with MeasuredCostModel(context, JsonLinesDatabase(log), config, replay_only=True) as model:
        (cost,) = model.estimate([workload], [tvm_target])
    assert (cost.status, cost.reason) == (CostStatus.WRONG_RESULT, "off by a half")
