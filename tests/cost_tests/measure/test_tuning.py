"""Backends that tune get all of their candidates at once, before these are built."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import backend_names, get_backend, register_backend
from collage.backends.storage import CACHE_FILE
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.keys import KeyMaker
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, CUDA_POLICY, Device, DevicePolicy
from collage.cost.engines import LocalEngine
from collage.cost.measure import feed
from collage.cost.measure.engine import Work
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.tuning import Tuning
from collage.cost.progress import ProgressEvent
from collage.cost.workload.workload import Workload
from tests.cost_tests.conftest import ToyTarget, toy_workload
from tests.cost_tests.measure.test_building_and_timing import SlowRunner
from tests.cost_tests.support import external_partition, tensor
from tests.cost_tests.toy_tunable_backend import ToyTunableBackend

PLUGINS = [
    "tests.cost_tests.toy_backend:ToyBackend",
    "tests.cost_tests.toy_tunable_backend:ToyTunableBackend",
]


def tunable(**attributes: str) -> BackendTarget:
    if "toy_tunable" not in backend_names():
        register_backend(ToyTunableBackend())
    options = get_backend("toy_tunable").parse_options(attributes)
    return BackendTarget("toy_tunable", tvm.target.Target("llvm"), options)


def workload(*shape: int) -> Workload:
    """What the tunable toy runs."""
    mod = external_partition("toy_tunable", [tensor("x", *shape)], op.nn.relu, "toy.relu")
    return Workload.from_module(mod)


def findings(context: BuildContext) -> Iterator[dict[str, Any]]:
    path = context.cache_dir / CACHE_FILE
    yield from map(json.loads, path.read_text().splitlines() if path.exists() else ())


def pids(context: BuildContext, what: str) -> list[int]:
    """The processes that tuned, or built, something."""
    return [f["result"]["pid"] for f in findings(context) if what in f["key"]]


class Search:
    """A measurer for a GPU that times nothing, and what it said and recorded."""

    def __init__(self, context: BuildContext, policy: DevicePolicy = CUDA_POLICY) -> None:
        self.events: list[ProgressEvent] = []
        self.database = JsonLinesDatabase()
        self._context, self._policy = context, policy

    def measure(self, questions: list[Question], deadline: Deadline = NEVER) -> list[str]:
        """The backends of what was measured, in that order."""
        stats = MeasureStats()
        device = Device(self._policy.kind.name, "toy", 1, "sm_90", "1")
        made = Measurer(
            LocalEngine(SlowRunner(0.0), device),
            Work(self._policy, self._context, MeasureConfig(), 2, deadline),
            RecordLookup(self.database, stats),
            stats,
            self.events.append,
            plugins=PLUGINS,
        )
        keys = KeyMaker(self._context, MeasureConfig(), device)
        try:
            made.measure({keys.partition(w, t): (w, t) for w, t in questions})
        finally:
            made.close()
        return [e.message.split(" on ")[1].split(":")[0] for e in self.said("measure")]

    def said(self, stage: str) -> list[ProgressEvent]:
        return [event for event in self.events if event.stage == stage]


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(tmp_path / "cache", tmp_path / "work", num_threads=1)


def test_all_are_tuned_in_one_process_while_others_are_built(
    context: BuildContext, toy: ToyTarget
) -> None:
    search, target = Search(context), tunable(tuning="slow")
    slow: list[Question] = [(workload(n, 10), target) for n in range(1, 4)]
    others: list[Question] = [(toy_workload(n, 10), toy()) for n in range(1, 4)]
    order = search.measure([*slow, *others])
    assert order == ["toy"] * 3 + ["toy_tunable"] * 3
    (tuned,) = [f["key"]["tuned"] for f in findings(context) if "tuned" in f["key"]]
    assert sorted(tuned) == [[1, 10], [2, 10], [3, 10]]
    assert len(pids(context, "built")) == 3
    assert not set(pids(context, "tuned")) & set(pids(context, "built"))
    (told,) = search.said("tune")
    assert told.message == "toy_tunable chooses kernels for 3 candidates"


@pytest.mark.parametrize("policy", [CUDA_POLICY, CPU_POLICY])
def test_who_tunes_and_builds_leaves_the_cores_to_those_that_are_waited_for(
    context: BuildContext, policy: DevicePolicy
) -> None:
    Search(context, policy).measure([(workload(n, 10), tunable()) for n in range(1, 3)])
    own = os.getpriority(os.PRIO_PROCESS, 0)
    beside = min(19, own + (10 if policy is CUDA_POLICY else 0))
    assert {f["result"]["nice"] for f in findings(context)} == {beside}


def test_what_is_chosen_for_is_built_while_others_are_tuned(context: BuildContext) -> None:
    search, target = Search(context), tunable(tuning="one by one")
    assert len(search.measure([(workload(n, 10), target) for n in range(1, 4)])) == 3
    assert len(search.said("tune")) == 1, "the first was built before the others were tuned"


@pytest.mark.parametrize(
    ("tuning", "reason"),
    [("refuse", "the toy will not be tuned"), ("die", "the process died of SIGABRT")],
)
def test_tuning_that_fails_is_told_and_the_candidates_are_built_all_the_same(
    context: BuildContext, tuning: str, reason: str
) -> None:
    search, target = Search(context), tunable(tuning=tuning)
    assert len(search.measure([(workload(n, 10), target) for n in range(1, 4)])) == 3
    assert all(record.cost.is_valid for record in search.database.records())
    told = search.said("tune")[-1].message
    assert told.startswith("toy_tunable did not tune all at once: ") and reason in told


def test_tuning_leaves_time_to_build_what_was_chosen(context: BuildContext, toy: ToyTarget) -> None:
    search, target = Search(context), tunable(tuning="hang")
    hanging: list[Question] = [(workload(n, 10), target) for n in range(1, 4)]
    begin = time.monotonic()
    order = search.measure([*hanging, (toy_workload(1, 10), toy())], deadline=Deadline.after(20))
    assert 12 < time.monotonic() - begin < 30
    assert order == ["toy", *["toy_tunable"] * 3] and len(pids(context, "tuned")) == 1
    assert len(search.said("tune")) == 1, "being out of time is no failure of the backend"


def test_the_time_budget_ends_the_tuning_too(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_TUNING_SHARE", 2.0)
    search, target = Search(context), tunable(tuning="hang")
    hanging: list[Question] = [(workload(n, 10), target) for n in range(1, 4)]
    begin = time.monotonic()
    assert search.measure(hanging, deadline=Deadline.after(8)) == []
    assert time.monotonic() - begin < 25 and len(search.said("tune")) == 1


def test_a_single_candidate_is_left_to_its_builder(context: BuildContext) -> None:
    search = Search(context)
    assert search.measure([(workload(1, 10), tunable())]) == ["toy_tunable"]
    assert not pids(context, "tuned") and not search.said("tune")


def test_nothing_is_tuned_beside_what_is_timed_on_a_cpu(context: BuildContext) -> None:
    questions = [(workload(n, 10), tunable()) for n in range(1, 4)]
    told: list[str] = []
    with Tuning(questions, context, MeasureConfig(), CPU_POLICY, told.append) as tuning:
        assert not tuning.is_under_way(*questions[0])
    assert not told and not pids(context, "tuned")
