"""The whole way on a real GPU: search by measuring, with and without trouble, replay, tuning.

All but the first test need one:
``pytest -m gpu tests/collage_tests/pipeline/cuda/test_gpu_optimize.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.contract.registry import backend_names, register_backend
from collage.backends.storage import CACHE_FILE, TuningRecord, read_findings
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.base import CostStatus
from collage.cost.contest.rounds import Tolerance
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import PARTITION
from collage.cost.reference import evaluate
from collage.targets import TargetLike
from tests.collage_tests.pipeline.cuda import gpu_models
from tests.cost_tests.toy_cuda_backend import ToyCudaBackend

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not has_device(), reason="there is no CUDA device")

LIBRARIES: tuple[TargetLike, ...] = (
    "cuda",
    # One kernel of the kind that compiles fastest for each workload: this is no contest.
    {"kind": "cutlass", "sm": 80, "find_first_valid": True},
    "cublas",
    "cudnn",
)

HALF_TOLERANCE = 5e-3


def parts(result: collage.Result) -> list[tuple[int, str, tuple[str, ...]]]:
    """Nodes, backend and composites of every partition."""
    candidates = result.partitioning.candidates
    return [(c.nodes, c.backend, tuple(p.name for p in c.composites)) for c in candidates]


@pytest.mark.parametrize(
    "model",
    [
        gpu_models.mixed(),
        gpu_models.convolutions(),
        gpu_models.transformer(),
        gpu_models.dense_relu(),
        gpu_models.rectified(),
        gpu_models.wide(),
    ],
    ids=["mixed", "convolutions", "transformer", "dense_relu", "rectified", "wide"],
)
def test_what_the_models_must_compute_is_right(model: gpu_models.Model) -> None:
    """As far as two interpreters of ours that share nothing agree."""
    x = model.input(seed=3)
    (found,) = evaluate(model.module, [x])
    half = x.dtype == np.float16
    model.check(x, found, 1e-3 if half else 1e-6)


@dataclass(frozen=True)
class Searched:
    """A search over every library, and its log."""

    model: gpu_models.Model
    result: collage.Result
    log: Path


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    model = gpu_models.mixed()
    log = tmp_path_factory.mktemp("searched") / "log.jsonl"
    return Searched(model, collage.optimize(model.module, LIBRARIES, log=log), log)


@gpu
@needs_gpu
def test_every_library_is_measured_and_the_fastest_is_taken(searched: Searched) -> None:
    report = searched.result.report
    assert report.search.measured > 0
    records = [r for r in JsonLinesDatabase(searched.log).records() if r.key.kind == PARTITION]
    valid = {json.loads(r.key.target)["backend"] for r in records if r.cost.is_valid}
    failures = {r.cost.reason for r in records if not r.cost.is_valid}
    assert valid == {"tvm", "cutlass", "cublas", "cudnn"}, failures
    rows = {row.name: row for row in report.end_to_end}
    assert {"search", "greedy", "single:tvm", "single:cutlass"} <= set(rows)
    assert all(row.median_sec is not None for row in rows.values()), rows
    (chosen,) = (row for row in rows.values() if row.chosen)
    assert chosen.outcome == "chosen"
    # A difference of a microsecond is a tie, of however small a share of the time that may be.
    assert chosen.median_sec is not None
    least = 0.99 / Tolerance().ratio(chosen.median_sec)
    assert all(row.ratio >= least for row in rows.values() if row.ratio is not None), rows


@gpu
@needs_gpu
@pytest.mark.parametrize(
    "name", ["chosen", "single:tvm", "single:cutlass", "single:cublas", "single:cudnn"]
)
def test_what_comes_out_is_right(name: str, searched: Searched, tmp_path: Path) -> None:
    chosen = searched.result
    result = chosen if name == "chosen" else chosen.alternative(name)
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for seed in (11, 12):
        x = searched.model.input(seed)
        searched.model.check(x, bundle(x), HALF_TOLERANCE)


@gpu
@needs_gpu
def test_a_strict_replay_measures_nothing_and_decides_alike(searched: Searched) -> None:
    before = searched.log.read_bytes()
    again = collage.optimize(searched.model.module, LIBRARIES, log=searched.log, replay=True)
    assert again.report.search.measured == 0 and again.report.search.from_log > 0
    assert parts(again) == parts(searched.result)
    assert again.partitioning.seconds == searched.result.partitioning.seconds
    assert searched.log.read_bytes() == before


@gpu
@needs_gpu
def test_a_candidate_that_faults_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    """An illegal address ends the CUDA context of whoever runs it: a child process, not this."""
    if "toy_cuda" not in backend_names():
        register_backend(ToyCudaBackend())
    model, log = gpu_models.rectified(), tmp_path / "log.jsonl"
    targets: list[TargetLike] = ["cuda", {"kind": "toy_cuda", "behaviour": "fault"}]
    result = collage.optimize(model.module, targets, log=log)
    assert {c.backend for c in result.partitioning.candidates} == {"tvm"}
    partitions = [r for r in JsonLinesDatabase(log).records() if r.key.kind == PARTITION]
    bad = [r.cost for r in partitions if json.loads(r.key.target)["backend"] == "toy_cuda"]
    assert bad and all(cost.status is CostStatus.CRASHED for cost in bad), bad
    assert all("CUDA_ERROR_ILLEGAL_ADDRESS" in cost.reason for cost in bad), bad
    others = [a for a in result.report.alternatives if a.backend == "toy_cuda"]
    assert {a.status for a in others} == {"crashed"} and not any(a.chosen for a in others)
    (alone,) = (row for row in result.report.end_to_end if row.name == "single:toy_cuda")
    # What is known to crash went back to TVM, so this ran, with no partition of the backend's own.
    assert alone.median_sec is not None, alone
    left = result.alternative(alone.name).partitioning.candidates
    assert {candidate.backend for candidate in left} == {"tvm"}
    bundle = collage.load(result.export(tmp_path / "bundle"))
    x = model.input(seed=5)
    model.check(x, bundle(x), 1e-5)
    replayed = collage.optimize(model.module, targets, log=log, replay=True)
    assert parts(replayed) == parts(result)


@gpu
@needs_gpu
def test_metaschedule_tunes_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cloudpickle", reason="MetaSchedule's workers need it")
    cache = tmp_path / "cache"
    monkeypatch.setenv("COLLAGE_CACHE_DIR", str(cache))
    model = gpu_models.dense_relu()
    tuned = {"kind": "tvm", "schedule": "metaschedule", "tuning_trials": 8}

    def run(name: str) -> list[TuningRecord]:
        """Compile and check; the records of tuning afterwards."""
        result = collage.optimize(model.module, ["cuda", tuned], strategy="single:tvm")
        bundle = collage.load(result.export(tmp_path / name))
        x = model.input(seed=7)
        model.check(x, bundle(x), 1e-5)
        return read_findings(cache / CACHE_FILE)

    records = run("first")
    # A trial is [trace, seconds, target, arguments].
    seconds = [second for record in records for second in record.result["trial"][1]]
    assert 1 <= len(records) <= 8 and min(seconds) < 1e-2, seconds
    assert run("second") == records, "what is known was tuned again"
