"""A GPU that other compilers have filled: nothing is held against who found no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.backends.contract import BackendTarget, BuildContext
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.measure.builder import BuildJob, BuildResult
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.processes.crowding import FULL, Crowding, says_full
from tests.cost_tests.conftest import ToyTarget, toy_workload

PLUGINS = ["tests.cost_tests.toy_backend:ToyBackend"]


@pytest.mark.parametrize(
    "text",
    [
        "cudaStreamCreate: out of memory",
        "cudaMalloc(&data, bytes): out of memory",
        "cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY",
        "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED",
        "plan: CUDNN_STATUS_INTERNAL_ERROR; Reason: cudaStreamCreate",
        "cudnnSetStream: CUDNN_STATUS_ALLOC_FAILED",
        "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED",
        "cublasLtMatmul: CUBLAS_STATUS_ALLOC_FAILED",
    ],
)
def test_what_a_full_gpu_makes_libraries_say(text: str) -> None:
    assert says_full(text)


@pytest.mark.parametrize(
    "text",
    [
        "cc1plus: out of memory allocating 65536 bytes",
        "std::bad_alloc",
        "CUDNN_STATUS_NOT_SUPPORTED: no plan",
        "cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE",
    ],
)
def test_other_failures_are_the_candidates(text: str) -> None:
    assert not says_full(text)


def test_fewer_run_while_there_is_no_room_and_a_request_is_given_up_in_the_end() -> None:
    crowding, reason = Crowding(8), f"{FULL}: cudaMalloc: out of memory"
    tries = [crowding.is_asked_again(0, reason, running=running) for running in (7, 5, 3, 0, 0, 0)]
    assert tries == [True] * 5 + [False] and crowding.most == 1
    crowding.begin()
    assert crowding.most == 2
    # A library's own fault looks the same: the others go on as they are.
    internal = f"{FULL}: CUDNN_STATUS_INTERNAL_ERROR"
    assert [crowding.is_asked_again(0, internal, running=1) for _ in range(3)][-1] is False
    assert crowding.most == 2


def built(
    context: BuildContext, config: MeasureConfig, targets: list[BackendTarget], folder: Path
) -> list[BuildResult]:
    """One job for each target, all at once."""
    jobs = [
        BuildJob(toy_workload(3, 4 + number), target, folder / str(number))
        for number, target in enumerate(targets)
    ]
    with LocalBuilder(context, config, PLUGINS, parallel=len(jobs)) as builder:
        return builder.build(jobs)


def test_who_finds_no_room_is_built_when_fewer_are(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, tmp_path: Path
) -> None:
    results = built(context, config, [toy(build="room for one")] * 2, tmp_path)
    assert [result.status for result in results] == [CostStatus.VALID] * 2, results


def test_what_libraries_say_of_a_full_gpu_is_never_a_failed_build(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, tmp_path: Path
) -> None:
    (result,) = built(context, config, [toy(build="library fails")], tmp_path)
    assert result.status is CostStatus.UNKNOWN and result.reason.startswith(FULL)
