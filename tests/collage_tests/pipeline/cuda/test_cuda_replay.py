"""A log that was made on a GPU, on a machine without one: replayed, compiled as it was tuned.

The log is made here: everything writes into it that would on a GPU, but for the times, which are a
table's, and for the kernels' tuning, where stand-ins take the place of what runs on the device.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.errors import LogError, ReplayMissError, TargetError
from collage.backends.cublas import codegen as cublas_codegen
from collage.backends.cublas.library import find_installation
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import Choice
from collage.backends.cublas.timer import Device as CublasDevice
from collage.backends.cublas.tuning import SCHEMA, version_number
from collage.backends.cutlass import codegen as cutlass_codegen
from collage.backends.link import CompiledLibrary
from collage.backends.storage import CACHE_FILE, TuningStore, read_findings
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cli import main
from collage.cost.base import Cost, CostStatus
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import TRANSITION, Record, RecordKey
from collage.cost.deadline import Deadline
from collage.cost.device import CUDA_POLICY, Device, LocalDevice
from collage.cost.device.cuda import CudaPolicy
from collage.cost.measure.runner import RunResult
from collage.cost.measure.scheduler import Measurer
from collage.cost.measure.whole_models.model_builder import ModelJob, ModelResult
from collage.cost.measure.whole_models.model_scheduler import ModelScheduler
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion
from collage.cost.models import MeasuredCostModel
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.processes.staging import compile_to_measure
from collage.targets import TargetLike
from tests.backends_tests.cublas.choices import keep_choice
from tests.backends_tests.cutlass.tuning.fake_profiler import FakeProfiler, favour_last
from tests.machine_code import defined_functions, device_code
from tests.object_cache import cache_with_objects

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(has_device(), reason="there is a GPU here"),
    pytest.mark.timeout(900),
]

TARGETS: tuple[TargetLike, ...] = (
    {"kind": "cuda", "arch": "sm_90a"},
    {"kind": "cutlass", "sm": 80, "split_k_slices": 1},
    "cublas",
)
TARGET_TEXTS = ("cuda:arch=sm_90a", "cutlass:sm=80,split_k_slices=1", "cublas")

H200 = Device("cuda", "NVIDIA H200", 132, "sm_90", "580.65.06, CUDA 13.0", 143_771)

TABLE = {
    ("matmul 32x64 * 64x96 + bias + relu", "cutlass"): 1.3e-5,
    ("layer_norm 32x96", "tvm"): 1.4e-5,
    ("matmul 32x96 * 96x48 + bias", "cublas"): 1.5e-5,
}
"""Seconds by workload and backend; one way through the network, in its order."""

WORDS = (7, 0, 11, 0, 13, 0, 17, 2**63)
"""Of cublasLt's algorithm."""


def network(*, whole: bool = True) -> tvm.IRModule:
    """Two dense layers with a norm between them, or the first one alone."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> relax.Expr:
        return relax.const((rng.standard_normal(shape) / 8).astype("float16"))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((32, 64), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = op.nn.relu(op.add(op.matmul(x, weights(64, 96)), weights(96)))
            if whole:
                value = op.nn.layer_norm(value, weights(96), weights(96), axes=[-1])
                value = op.add(op.matmul(value, weights(96, 48)), weights(48))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def record_candidates(self: Measurer, misses: Mapping[RecordKey, Any]) -> None:
    """In the place of building and timing: what the table says."""
    for key, (workload, target) in misses.items():
        text = workload.describe()
        sec = TABLE.get((text, target.backend), 1e-3)
        sec = 1e-6 if key.kind == TRANSITION else sec
        cost = Cost(CostStatus.VALID, sec, sec / 50, (sec,))
        self._lookup.keep(Record(key, cost, text, target.backend))


def compile_search_alone(
    self: Measurer,
    jobs: Sequence[ModelJob],
    targets: Sequence[BackendTarget],
    _: Deadline,
    done: Callable[[int, ModelResult], object],
    __: Deadline,
) -> list[ModelResult]:
    """In the place of compiling whole models: here, and only the one that is going to win."""
    made = []
    for index, job in enumerate(jobs):
        library = CompiledLibrary(job.output, ())
        if job.description == "search":
            library = compile_to_measure(job.module, targets, job.output, self._work.context)
        made.append(ModelResult(CostStatus.VALID, library=library))
        done(index, made[-1])
    return made


def time_models(
    self: Measurer, question: EndToEndQuestion, _: Sequence[Path], __: Deadline, ___: Deadline
) -> list[RunResult]:
    """In the place of timing whole models: the search's answer is the fastest."""
    made = []
    for model in question.models:
        sec = 5e-5 if model.description == "search" else 9e-5
        made.append(RunResult(Cost(CostStatus.VALID, sec, sec / 50, (sec,)), largest_error=1e-4))
    return made


def choose(problems: Sequence[Problem], *args: Any) -> dict[Problem, Choice]:
    """In the place of timing cublasLt's algorithms."""
    context = next(one for one in args if isinstance(one, BuildContext))
    device = CublasDevice(H200.name, 13000, 90, H200.cores)
    version = version_number(find_installation().library.version)
    choice = Choice(device, version, WORDS, 4096, 3e-6, 4e-6, 24)
    log = TuningStore.of("cublas", SCHEMA, context)
    for problem in problems:
        keep_choice(log, problem, choice)
    return dict.fromkeys(problems, choice)


@dataclass(frozen=True)
class Recorded:
    """A log as a machine with a GPU makes it, and what came out there."""

    log: Path
    result: collage.Result

    @property
    def tuned(self) -> tuple[str, str]:
        """Symbols of CUTLASS's fastest unit and of its first guess."""
        (finding,) = [f for f in read_findings(self.log) if f.backend == "cutlass"]
        tried = finding.result["tried"]
        return min(tried, key=lambda row: row["sec"])["unit"], tried[0]["unit"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("gpu")
    here = {"name": H200.name, "compute_capability": 90}
    profiler = dataclasses.replace(favour_second(), device=here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLLAGE_CACHE_DIR", str(cache_with_objects(folder)))
        patch.setattr(CudaPolicy, "all_here", lambda _: [LocalDevice("cuda:0", H200)])
        patch.setattr(Measurer, "measure", record_candidates)
        # What stands in for the GPU knows no rounds.
        patch.setattr(MeasuredCostModel, "times_together", False)
        patch.setattr(ModelScheduler, "compile", compile_search_alone)
        patch.setattr(ModelScheduler, "measure", time_models)
        patch.setattr(cutlass_codegen, "gpu_profiler", lambda *_: profiler)
        patch.setattr(cublas_codegen, "choose", choose)
        result = collage.optimize(network(), TARGETS, log=folder / "log.jsonl")
    assert [c.backend for c in in_order(result)] == [backend for _, backend in TABLE]
    return Recorded(folder / "log.jsonl", result)


def favour_second() -> FakeProfiler:
    """The second of a spec's configurations is the fastest."""
    slowing = favour_last()
    answer = slowing.answer
    first: list[Any] = []

    def second_is_best(job: Any) -> Any:
        first.append(job.configuration)
        outcome = answer(job)
        return dataclasses.replace(outcome, sec=1e-9 if len(first) == 2 else 1e-6)

    return FakeProfiler(second_is_best)


def in_order(result: collage.Result) -> list[Any]:
    return sorted(result.partitioning.candidates, key=lambda c: c.nodes)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has never compiled for a GPU that was there; its cache folder."""
    cache = cache_with_objects(tmp_path)
    monkeypatch.setenv("COLLAGE_CACHE_DIR", str(cache))
    return cache


def holds_tuned_code(library: Path, recorded: Recorded) -> None:
    """See that a library holds what was tuned, not the first guesses."""
    best, guess = recorded.tuned
    assert best != guess
    functions = defined_functions(library)
    assert best in functions and guess not in functions
    assert struct.pack("<8Q", *WORDS) in library.read_bytes()
    assert {(image.kind, image.arch) for image in device_code(library)} == {("elf", 90)}


def test_the_log_replays_without_a_gpu(recorded: Recorded, elsewhere: Path) -> None:
    before = recorded.log.read_bytes()
    result = collage.optimize(network(), TARGETS, log=recorded.log, replay=True)
    assert in_order(result) == in_order(recorded.result)
    report = result.report
    assert (report.search.measured, report.device["name"]) == (0, H200.name)
    assert report.search.from_log == len(JsonLinesDatabase(recorded.log, read_only=True))
    ours = {row.name: row.median_sec for row in report.end_to_end}
    assert ours == {row.name: row.median_sec for row in recorded.result.report.end_to_end}
    holds_tuned_code(result.library.path, recorded)
    assert recorded.log.read_bytes() == before
    assert not (elsewhere / CACHE_FILE).exists()


def test_the_command_line_replays_it_and_makes_a_bundle(
    recorded: Recorded, elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.json"
    model.write_text(tvm.ir.save_json(network()))
    targets = [part for text in TARGET_TEXTS for part in ("-t", text)]
    options = ["--log", str(recorded.log), "--replay", "-o", str(tmp_path / "bundle"), "--json"]
    assert main(["optimize", str(model), *targets, *options]) == 0
    assert json.loads(capsys.readouterr().out)["search"]["measured"] == 0
    holds_tuned_code(tmp_path / "bundle" / "model.so", recorded)


def test_an_estimate_with_the_log_takes_the_tuned_kernels(
    recorded: Recorded, elsewhere: Path
) -> None:
    before = recorded.log.read_bytes()
    for log, tuned in ((recorded.log, True), (None, False)):
        costs = RooflineCostModel()
        result = collage.optimize(
            network(whole=False), TARGETS, log=log, cost_model=costs, strategy="single:cutlass"
        )
        functions = defined_functions(result.library.path)
        best, guess = recorded.tuned
        assert (best in functions, guess in functions) == (tuned, not tuned)
    assert recorded.log.read_bytes() == before


@pytest.mark.parametrize("backend", ["cutlass", "cublas"])
def test_tuning_that_the_log_lacks_is_an_error(
    backend: str, recorded: Recorded, elsewhere: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    lines = recorded.log.read_text().splitlines(keepends=True)
    tuning = f'{{"kind": "tuning", "backend": "{backend}"'
    log.write_text("".join(line for line in lines if not line.startswith(tuning)))
    with pytest.raises(ReplayMissError, match=f"{backend}'s tuning of"):
        collage.optimize(network(), TARGETS, log=log, replay=True)


def test_several_gpus_in_the_log_are_an_error(recorded: Recorded, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(recorded.log.read_bytes())
    record = next(JsonLinesDatabase(recorded.log, read_only=True).records())
    h100 = dataclasses.replace(H200, name="NVIDIA H100, PCIe", cores=114)
    key = dataclasses.replace(record.key, device=CUDA_POLICY.device_key(h100))
    JsonLinesDatabase(log).append(dataclasses.replace(record, key=key))
    with pytest.raises(LogError, match=r"several GPUs of architecture sm_90a .*H200.*H100, PCIe"):
        collage.optimize(network(), TARGETS, log=log, replay=True)


def test_a_log_of_no_such_gpu_is_an_error(recorded: Recorded, tmp_path: Path) -> None:
    targets = ({"kind": "cuda", "arch": "sm_80"}, *TARGETS[1:])
    with pytest.raises(ReplayMissError, match="no GPU of architecture sm_80 here, and the log"):
        collage.optimize(network(), targets, log=recorded.log, replay=True)
    nothing = r"nothing can be measured for target 'cuda' on this machine: there is no.*--estimate"
    with pytest.raises(TargetError, match=nothing):
        collage.optimize(network(), TARGETS, log=recorded.log)


def test_a_gpu_is_read_from_its_key() -> None:
    for device in (H200, dataclasses.replace(H200, name="Some, GPU", driver="CUDA 13.1")):
        assert CUDA_POLICY.device_from_key(CUDA_POLICY.device_key(device), device.driver) == device
    assert CUDA_POLICY.device_from_key("AMD EPYC, 2 cores, isa 0123456789ab", "none") is None
