"""On a GPU, what is built is timed while others are being built; references are shared."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm

from collage.backends.contract import BackendTarget, BuildContext, LibraryRequirement
from collage.backends.contract.errors import MeasurementError
from collage.backends.devices import CUDA
from collage.backends.link import CompiledLibrary
from collage.backends.storage import exclusive
from collage.cost.base import Clocks, Cost, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import Database, JsonLinesDatabase
from collage.cost.database.keys import KeyMaker
from collage.cost.database.record import RecordKey
from collage.cost.deadline import NEVER, Deadline
from collage.cost.device import CPU_POLICY, CUDA_POLICY, Device, DevicePolicy
from collage.cost.engines import LocalEngine
from collage.cost.measure.builder import BuildResult
from collage.cost.measure.engine import Work
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.replay import MeasureStats, Question, RecordLookup
from collage.cost.measure.runner import RunJob, Runner, RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.whole_models import model_scheduler
from collage.cost.measure.whole_models.model_builder import ModelResult
from collage.cost.measure.whole_models.model_timer import (
    EndToEndQuestion,
    ModelTimer,
    WholeModel,
)
from collage.cost.processes.staging import load_requirements, stage_to_measure
from collage.cost.progress import ignore
from collage.cost.workload.arrays import load_arrays
from tests.cost_tests.conftest import ToyTarget, toy_workload

GPU = Device("cuda", "toy", 1, "sm_90", "1")


class SlowRunner(Runner):
    """Notes when it ran what; takes its time."""

    def __init__(self, run_sec: float) -> None:
        self.run_sec = run_sec
        self.spans: list[tuple[float, float]] = []

    def run(self, job: RunJob) -> RunResult:
        assert job.library.exists() and load_arrays(job.sample / "expected")
        begin = time.monotonic()
        time.sleep(self.run_sec)
        self.spans.append((begin, time.monotonic()))
        cost = Cost(CostStatus.VALID, 1e-6, 0.0, (1e-6,))
        return RunResult(cost, run_sec=self.run_sec, clocks=Clocks(1000, 2000))

    def close(self) -> None:
        pass


def measurer(
    context: BuildContext,
    runner: Runner,
    database: Database,
    deadline: Deadline = NEVER,
    *,
    policy: DevicePolicy = CUDA_POLICY,
) -> tuple[Measurer, MeasureStats]:
    stats = MeasureStats()
    answers = RecordLookup(database, stats)
    made = Measurer(
        LocalEngine(runner, GPU if policy is CUDA_POLICY else None),
        Work(policy, context, MeasureConfig(), 2, deadline),
        answers,
        stats,
        ignore,
        plugins=["tests.cost_tests.toy_backend:ToyBackend"],
    )
    return made, stats


def questions(context: BuildContext, workloads: Sequence[Question]) -> dict[RecordKey, Question]:
    keys = KeyMaker(context, MeasureConfig(), GPU)
    return {keys.partition(w, t): (w, t) for w, t in workloads}


class _UnableRunner(SlowRunner):
    """Of which no process can start."""

    def warm_up(self) -> None:
        raise MeasurementError("a measuring process cannot start: for a test")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", [CPU_POLICY, CUDA_POLICY], ids=["held for building", "beside"])
def test_a_place_that_cannot_begin_ends_the_search(
    context: BuildContext, toy: ToyTarget, policy: DevicePolicy
) -> None:
    """Nothing is taken for it any longer, and somebody has to say so."""
    made, _ = measurer(context, _UnableRunner(0.0), JsonLinesDatabase(), policy=policy)
    try:
        with pytest.raises(MeasurementError, match="cannot start: for a test"):
            made.measure(questions(context, [(toy_workload(3, 10), toy())]))
    finally:
        made.close()


def test_building_goes_on_while_something_is_timed(
    context: BuildContext, toy: ToyTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[float] = []
    build = LocalBuilder.build

    def noting(self, jobs, done, more):  # type: ignore[no-untyped-def]
        def told(index: int, result: BuildResult) -> None:
            built.append(result.build_sec)
            done(index, result)

        return build(self, jobs, told, more)

    monkeypatch.setattr(LocalBuilder, "build", noting)
    runner, database = SlowRunner(0.3), JsonLinesDatabase()
    made, stats = measurer(context, runner, database)
    wanted = questions(context, [(toy_workload(n, 10), toy()) for n in range(1, 7)])
    try:
        begin = time.monotonic()
        made.measure(wanted)
        elapsed = time.monotonic() - begin
    finally:
        made.close()
    records = [database.lookup(key) for key in wanted]
    assert all(record is not None and record.cost.is_valid for record in records)
    assert all(record is not None and record.clocks == Clocks(1000, 2000) for record in records)
    assert len(runner.spans) == len(built) == 6
    assert all(a[1] <= b[0] for a, b in zip(runner.spans, runner.spans[1:], strict=False))
    assert stats.seconds_running == pytest.approx(6 * 0.3)
    assert stats.seconds_building == pytest.approx(elapsed - 6 * 0.3, abs=0.5)


def test_the_device_is_free_while_code_generators_run(
    context: BuildContext, toy: ToyTarget
) -> None:
    """They may try algorithms on it; a search on a CPU holds it all the time."""
    got: list[bool] = []
    stop = threading.Event()

    def another() -> None:
        while not stop.is_set():
            with exclusive(CUDA):
                got.append(True)
            time.sleep(0.01)

    made, _ = measurer(context, SlowRunner(0.0), JsonLinesDatabase())
    thread = threading.Thread(target=another)
    try:
        thread.start()
        made.measure(questions(context, [(toy_workload(2, 3), toy())]))
    finally:
        stop.set()
        thread.join()
        made.close()
    assert len(got) > 3


def test_bad_builds_are_recorded_and_the_time_budget_ends_the_rest(
    context: BuildContext, toy: ToyTarget
) -> None:
    database = JsonLinesDatabase()
    runner = SlowRunner(0.0)
    deadline = Deadline(lambda: -math.inf if len(runner.spans) >= 3 else math.inf)
    made, stats = measurer(context, runner, database, deadline)
    bad = (toy_workload(50, 1), toy(build="refuse"))
    wanted = questions(context, [bad, *((toy_workload(n, 10), toy()) for n in range(1, 40))])
    try:
        made.measure(wanted)
    finally:
        made.close()
    records = [record for key in wanted if (record := database.lookup(key)) is not None]
    assert len(records) == 4 and stats.measured == 4, "the bad one, and those that were in time"
    assert stats.invalid == 1 and records[0].cost.status is CostStatus.BUILD_FAILED
    assert not list(context.work_dir.glob("measure-*")), "nothing is left behind"


def test_a_gpu_gets_a_builder_per_core_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, builders in ((1, 2), (2, 2), (16, 15)):
        monkeypatch.setattr("collage.cost.device.cuda.available_cores", lambda n=cores: n)
        assert CUDA_POLICY.builders() == builders


def test_one_core_gets_one_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two whole models was there when the second was."""
    for cores, builders in ((1, 1), (2, 2), (16, 2)):
        monkeypatch.setattr("collage.cost.device.cpu.available_cores", lambda n=cores: n)
        assert CPU_POLICY.builders() == builders


# --- what a library needs before it is loaded -------------------------------------------------


def test_what_a_library_needs_is_loaded_before_it(tmp_path: Path) -> None:
    needed = tmp_path / "wheel" / "libneeded_by_test.so.7"
    needed.parent.mkdir()
    code = "int answer_of_needed(void) { return 42; }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-Wl,-soname,libneeded_by_test.so.7"]
    subprocess.run([*command, "-o", needed], input=code, text=True, check=True)
    library = tmp_path / "build" / "model.so"
    library.parent.mkdir()
    code = "int answer_of_needed(void); int answer(void) { return answer_of_needed(); }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-x", "none", needed]
    subprocess.run(command, input=code, text=True, check=True)
    need = LibraryRequirement("libneeded_by_test.so.7", "7.0", "a-wheel", needed)
    stage_to_measure(CompiledLibrary(library, (), (need,)))
    loader = (
        "import ctypes, sys; from pathlib import Path;"
        "from collage.cost.processes.staging import load_requirements;"
        "load_requirements(Path(sys.argv[1])); print(ctypes.CDLL(sys.argv[1]).answer())"
    )
    done = subprocess.run(
        [sys.executable, "-c", loader, library], capture_output=True, text=True, check=True
    )
    assert done.stdout == "42\n"
    needed.unlink()
    with pytest.raises(MeasurementError, match="libneeded_by_test"):
        load_requirements(library)
    stage_to_measure(CompiledLibrary(library, ()))
    load_requirements(library)  # Nothing is needed any longer.
    assert not library.with_name("requirements.json").exists()


def test_whole_models_are_compiled_before_the_device_is_held(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their code generators hold it: to wait for oneself would take an hour."""
    order: list[str] = []

    def compile_one(*_: object) -> list[ModelResult]:
        with exclusive(CUDA, lambda: order.append("waits")):
            order.append("compiles")
        return [ModelResult(CostStatus.BUILD_FAILED)]

    class Timer(ModelTimer):
        def __init__(self, *_: object) -> None:
            pass

        def measure(
            self, question: EndToEndQuestion, libraries: Sequence[Path], deadline: Deadline = NEVER
        ) -> list[RunResult]:
            thread = threading.Thread(target=compile_one)
            thread.start()
            time.sleep(0.3)
            order.append("times")
            waiting.append(thread)
            return [RunResult(Cost(CostStatus.VALID, 1.0, 0.0, (1.0,))) for _ in question.models]

    waiting: list[threading.Thread] = []
    monkeypatch.setattr("collage.cost.engines.local.EndToEndTimer", Timer)
    monkeypatch.setattr(model_scheduler, "compile_models", compile_one)
    made, _ = measurer(context, SlowRunner(0.0), JsonLinesDatabase())
    target = BackendTarget("tvm", tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    model = WholeModel("key", "model", (target,))
    key = KeyMaker(context, MeasureConfig(), GPU).make("end_to_end", "key", "", [target])
    made.models.compile([], [target])
    records = made.models.measure(EndToEndQuestion([model], []), [tmp_path], [key])
    waiting[0].join()
    assert records[0].cost.is_valid
    assert order == ["compiles", "waits", "times", "compiles"]
