"""Choosing algorithms while compiling: the log of choices, and the tuner over a stand-in."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tvm

from collage.backends.contract import BuildContext, LibraryRequirement
from collage.backends.contract.errors import ReplayMissError
from collage.backends.cublas.backend import CublasBackend
from collage.backends.cublas.codegen import render_stubs
from collage.backends.cublas.library import find_installation
from collage.backends.cublas.partition import Partition
from collage.backends.cublas.problem import Problem
from collage.backends.cublas.timer import Choice, Device, timer_library
from collage.backends.cublas.tuning import SCHEMA, choose, version_number
from collage.backends.storage import TuningStore
from collage.backends.toolchain import cuda_runtime
from collage.backends.toolchain.cuda_toolkit import cudart
from tests.backends_tests.cublas.choices import find_choice, keep_choice
from tests.backends_tests.cublas.support import compile_stand_in, serve

PROBLEM = Problem(
    *(24, 5, 32, 1, False, False, 24, 32, 24, 0, 0, 0, 2, False),
    *(True, False, True, False, 1 << 20),
)
VERSION = 131000
DEVICE = Device("NVIDIA H200", 13000, 90, 132)
CHOICE = Choice(DEVICE, VERSION, (2**64 - 1, 0, 1, 2, 3, 4, 5, 2**63), 4096, 3.5e-6, 4e-6, 24)
CUBLAS = LibraryRequirement("libcublasLt.so.13", "13.10.0", "nvidia-cublas", Path("/"))


def log_at(path: Path) -> TuningStore:
    return TuningStore("cublas", SCHEMA, path)


def test_choices_are_remembered_by_all_that_they_depend_on(tmp_path: Path) -> None:
    log = log_at(tmp_path / "folder" / "tuning.jsonl")
    assert find_choice(log, PROBLEM, VERSION, asdict(DEVICE)) is None
    keep_choice(log, PROBLEM, CHOICE)
    wider = replace(PROBLEM, n=6)
    keep_choice(log, wider, replace(CHOICE, workspace_bytes=0))
    again = log_at(tmp_path / "folder" / "tuning.jsonl")
    for known in (log, again):
        assert find_choice(known, PROBLEM, VERSION, asdict(DEVICE)) == CHOICE
        found = find_choice(known, wider, VERSION, asdict(DEVICE))
        assert found == replace(CHOICE, workspace_bytes=0)
    for field in PROBLEM.fields():
        changed = replace(PROBLEM, **{field: PROBLEM.fields()[field] + 3})
        assert find_choice(again, changed, VERSION, asdict(DEVICE)) is None
    assert find_choice(again, PROBLEM, VERSION + 1, asdict(DEVICE)) is None
    for change in ({"name": "NVIDIA H100"}, {"driver": 12080}, {"multiprocessors": 78}):
        assert find_choice(again, PROBLEM, VERSION, asdict(replace(DEVICE, **change))) is None


def test_the_last_of_equal_choices_counts(tmp_path: Path) -> None:
    log = log_at(tmp_path / "tuning.jsonl")
    for measured in (24, 7, 9):
        keep_choice(log, PROBLEM, replace(CHOICE, measured=measured))
    found = find_choice(log_at(tmp_path / "tuning.jsonl"), PROBLEM, VERSION, asdict(DEVICE))
    assert found is not None and found.measured == 9
    (line, *_) = (tmp_path / "tuning.jsonl").read_text().splitlines()
    assert json.loads(line)["result"]["algorithm"][0] == "0xffffffffffffffff"


def test_stored_words_reach_the_generated_source_unchanged() -> None:
    partition = Partition("f", PROBLEM, 1, 0, 2, -1, 4)
    other = Partition("g", replace(PROBLEM, n=6), 1, 0, 2, -1, 4)
    same = replace(partition, symbol="h", a=3)
    text = render_stubs([partition, other, same], {PROBLEM: CHOICE}, 1 << 20).text
    assert text.count("static const collage_cublas_problem") == 2
    assert text.count("static const collage_cublas_choice") == 1
    words = ", ".join(f"0x{word:016x}u" for word in CHOICE.algorithm)
    assert words in " ".join(text.split())
    assert ".multiprocessors = 132" in text and ".version = 131000" in text
    assert "the fastest of 24 on NVIDIA H200: 3.50 us" in text
    for symbol in ("f", "g", "h"):
        assert f"COLLAGE_EXPORT({symbol})" in text


@pytest.mark.parametrize("gpu", [False, True])
def test_without_a_gpu_of_the_target_only_what_is_remembered_is_chosen(
    gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ampere:
        device_name = "NVIDIA A100"
        compute_version = "8.0"
        multi_processor_count = 108
        total_global_memory = 40 << 30

    monkeypatch.setattr(cuda_runtime, "has_device", lambda index: gpu)
    monkeypatch.setattr(tvm, "cuda", lambda _: Ampere())
    context = BuildContext(tmp_path / "cache", tmp_path / "work", tuning_log=tmp_path / "log")
    assert choose([PROBLEM], "sm_90a", CUBLAS, tmp_path, context) == {}
    assert not context.cache_dir.exists(), "nothing was compiled or written"

    keep_choice(log_at(tmp_path / "log"), PROBLEM, CHOICE)
    wider = replace(PROBLEM, n=6)
    assert choose([PROBLEM, wider], "sm_90a", CUBLAS, tmp_path, context) == {PROBLEM: CHOICE}
    assert choose([PROBLEM], "sm_86", CUBLAS, tmp_path, context) == {}
    newer = msgspec.structs.replace(CUBLAS, version="13.10.1")
    assert choose([PROBLEM], "sm_90a", newer, tmp_path, context) == {}

    strict = replace(context, replay=True)
    assert choose([PROBLEM], "sm_90a", CUBLAS, tmp_path, strict) == {PROBLEM: CHOICE}
    with pytest.raises(ReplayMissError, match="cublas's tuning of float32 NN m=24 n=6 k=32"):
        choose([PROBLEM, wider], "sm_90a", CUBLAS, tmp_path, strict)


def test_the_version_is_written_as_cublaslt_says_it() -> None:
    assert version_number("13.10.0") == VERSION


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("stand_in"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuner")
    context = BuildContext(folder / "cache", folder / "work")
    (need,) = CublasBackend().required_libraries(None)  # type: ignore[arg-type]
    include = find_installation().include
    made = timer_library([need, cudart()], include, context)
    assert timer_library([need, cudart()], include, context) == made
    return made


def tune(stand_in: Path, library: Path, folder: Path, *problems: Problem, **more: Any) -> Any:
    log = str(folder / "tuning.jsonl")
    request = {"problems": [problem.fields() for problem in problems], "log": log, **more}
    return serve(stand_in, library, folder, request)


@pytest.mark.cuda
def test_the_fastest_algorithm_that_runs_and_can_be_captured_wins(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    answer = tune(stand_in, library, tmp_path, PROBLEM)
    (choice,) = answer["choices"]
    # Algorithms 3 and 4 would be faster: the one cannot be launched, the other not captured.
    assert choice["algorithm"][0] == 1 and choice["algorithm"][7] == 0xFFEEDDCCBBAA9988
    assert choice["measured"] == 3
    assert choice["time_sec"] == pytest.approx(7e-6, rel=1e-3)
    assert choice["first_time_sec"] == pytest.approx(10e-6, rel=1e-3)
    assert choice["workspace_bytes"] == 1024
    assert choice["device"] == {
        "name": "stand-in",
        "driver": 13000,
        "compute_capability": 90,
        "multiprocessors": 132,
    }
    assert choice["version"] == 131000


@pytest.mark.cuda
def test_each_distinct_product_is_timed_once_per_machine(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    wider = replace(PROBLEM, n=9, bias=False, residual=True, batch=2, stride_b=288, stride_d=216)
    first = tune(stand_in, library, tmp_path, PROBLEM, wider, PROBLEM)
    assert first["heuristics"] == 2
    again = tune(stand_in, library, tmp_path, wider, PROBLEM)
    assert again["heuristics"] == 0
    assert again["choices"] == [first["choices"][1], first["choices"][0]]
    newer = tune(stand_in, library, tmp_path, PROBLEM, version=131001)
    assert newer["heuristics"] == 1
    assert newer["choices"][0]["version"] == 131001


@pytest.mark.cuda
def test_a_replay_times_nothing(stand_in: Path, library: Path, tmp_path: Path) -> None:
    strict = tune(stand_in, library, tmp_path, PROBLEM, replay=True)
    assert "cublas's tuning of float32 NN m=24 n=5 k=32" in strict["error"]
    assert not (tmp_path / "tuning.jsonl").exists()
    (made,) = tune(stand_in, library, tmp_path, PROBLEM)["choices"]
    before = (tmp_path / "tuning.jsonl").read_bytes()
    replayed = tune(stand_in, library, tmp_path, PROBLEM, replay=True)
    assert replayed["choices"] == [made] and replayed["heuristics"] == 0
    assert (tmp_path / "tuning.jsonl").read_bytes() == before


@pytest.mark.cuda
def test_a_small_gain_does_not_replace_the_first_guess(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    times = {"0": 10.0, "1": 9.95, "2": 12.0}
    (choice,) = tune(stand_in, library, tmp_path, PROBLEM, times_us=times)["choices"]
    assert choice["algorithm"][0] == 0


@pytest.mark.cuda
def test_the_workspace_limit_holds_for_candidates(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    frugal = replace(PROBLEM, workspace_limit=1000)
    (choice,) = tune(stand_in, library, tmp_path, frugal)["choices"]
    assert (choice["algorithm"][0], choice["workspace_bytes"], choice["measured"]) == (0, 0, 1)


@pytest.mark.cuda
def test_a_product_that_cublaslt_refuses_is_an_error_with_its_reason(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    answer = tune(stand_in, library, tmp_path, replace(PROBLEM, lda=23))
    assert "no algorithm for this product: an unsupported value" in answer["error"]
    assert "float32 NN m=24 n=5 k=32" in answer["error"]


@pytest.mark.cuda
def test_a_refused_product_costs_no_other_its_algorithm(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    answer = tune(stand_in, library, tmp_path, replace(PROBLEM, lda=23), PROBLEM)
    assert "no algorithm for this product" in answer["error"]
    (made,) = (tmp_path / "tuning.jsonl").read_text().splitlines()
    again = tune(stand_in, library, tmp_path, PROBLEM)
    assert again["heuristics"] == 0 and json.loads(made)["result"]["measured"] == 3


@pytest.mark.cuda
def test_the_device_is_held_for_timing_only(stand_in: Path, library: Path, tmp_path: Path) -> None:
    answer = tune(stand_in, library, tmp_path, PROBLEM, replace(PROBLEM, n=9))
    calls = answer["calls"]
    # Three algorithms can be captured: each is replayed once before it is timed.
    assert len(calls["cudaGraphLaunch"]) >= 2 * 3 * 2 and all(calls.pop("cudaGraphLaunch"))
    assert {"cublasLtCreate", "cublasLtMatmulAlgoGetHeuristic", "cudaMalloc"} < set(calls)
    assert {"cublasLtMatmul", "cudaGraphInstantiate", "cudaFree"} < set(calls)
    assert not any(held for seen in calls.values() for held in seen)
    # Others are disturbed by one launch of each algorithm, and six more of the first.
    assert len(calls["cublasLtMatmul"]) == 2 * (5 + 6)
    assert answer["alive"] == 0 and not answer["held_after"]


@pytest.mark.cuda
def test_what_another_process_measured_meanwhile_is_taken(
    stand_in: Path, library: Path, tmp_path: Path
) -> None:
    (made,) = tune(stand_in, library, tmp_path / "other", PROBLEM)["choices"]
    other = {**made, "measured": 99}
    answer = tune(stand_in, library, tmp_path / "this", PROBLEM, meanwhile=other)
    assert answer["choices"] == [other] and answer["heuristics"] == 0
    assert len((tmp_path / "this" / "tuning.jsonl").read_text().splitlines()) == 1


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("call", "nth", "reason"),
    [
        ("cudaMalloc", 1, "cudaMalloc: a CUDA error"),
        ("cublasLtCreate", 1, "cublasLtCreate: another status"),
        ("cublasLtMatmulAlgoGetHeuristic", 1, "no algorithm for this product: another status"),
        ("cudaMalloc", 2, "cudaMalloc: a CUDA error"),
        ("cudaGraphInstantiate", 2, "cudaGraphInstantiate: a CUDA error"),
        ("cudaGraphLaunch", 1, "cudaGraphLaunch: a CUDA error"),
        ("cudaGraphLaunch", 5, "cudaGraphLaunch: a CUDA error"),
    ],
)
def test_a_failure_keeps_neither_the_device_nor_its_memory(
    stand_in: Path, library: Path, tmp_path: Path, call: str, nth: int, reason: str
) -> None:
    answer = tune(stand_in, library, tmp_path, PROBLEM, failing=[call, nth])
    assert answer["error"].startswith("cublas cannot choose an algorithm for float32 NN m=24 n=5")
    assert reason in answer["error"] and len(answer["calls"][call]) == nth
    assert answer["alive"] == 0 and not answer["held_after"]
    assert not (tmp_path / "tuning.jsonl").exists()
