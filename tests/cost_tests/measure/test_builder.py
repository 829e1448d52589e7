"""The builder: what it leaves on disk, and that no compiler failure stops it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm.relax import op

from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.storage import CACHE_FILE
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.database import JsonLinesDatabase
from collage.cost.measure.builder import BuildJob, BuildResult
from collage.cost.measure.local_builder import LocalBuilder
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.runner import RunJob
from collage.cost.workload.arrays import load_arrays, save_arrays
from collage.cost.workload.workload import Workload
from tests.cost_tests.conftest import ToyTarget, toy_workload, tvm_workload
from tests.cost_tests.support import native_partition, tensor

PLUGINS = ["tests.cost_tests.toy_backend:ToyBackend"]


def test_what_workers_tune_is_in_the_log_and_a_replay_tunes_nothing(
    context: BuildContext, config: MeasureConfig, toy: ToyTarget, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"

    def build(name: str, shape: int, *, replay: bool) -> BuildResult:
        own = replace(context, cache_dir=tmp_path / name, tuning_log=log, replay=replay)
        job = BuildJob(toy_workload(3, shape), toy(build="tune"), tmp_path / f"{name}-build")
        with LocalBuilder(own, config, PLUGINS, parallel=1) as builder:
            (result,) = builder.build([job])
        assert result is not None
        return result

    log.touch()
    missed = build("strict", 5, replay=True)
    assert missed.status is CostStatus.BUILD_FAILED and "toy's tuning of relu" in missed.reason
    assert log.read_bytes() == b""
    # Of a machine that tuned, the log serves another one, and a replay, which leaves it alone.
    assert build("first", 5, replay=False).status is CostStatus.VALID
    (finding,) = JsonLinesDatabase(log).findings()
    assert (finding.backend, finding.result) == ("toy", {"unroll": 4})
    assert build("second", 6, replay=False).status is CostStatus.VALID
    assert build("third", 7, replay=True).status is CostStatus.VALID
    assert (
        list(JsonLinesDatabase(log).findings()) == [finding]
        and len(log.read_text().splitlines()) == 1
    )
    assert [(tmp_path / name / CACHE_FILE).exists() for name in ("first", "second")] == [
        True,
        False,
    ]


def test_bad_builds_are_invalid_results_and_the_others_are_built(
    context: BuildContext, toy: ToyTarget, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    config = MeasureConfig(build_timeout_sec=6.0, repeat=2, min_repeat=1, min_repeat_sec=0.001)
    wanted = [
        (toy_workload(3, 5), toy(), CostStatus.VALID, ""),
        (toy_workload(3, 5), toy(build="die"), CostStatus.CRASHED, "SIGABRT"),
        (toy_workload(3, 5), toy(build="refuse"), CostStatus.BUILD_FAILED, "does not want to"),
        (toy_workload(3, 5), toy(build="hang"), CostStatus.TIMED_OUT, "no answer within 6 s"),
        (
            toy_workload(3, 5),
            toy(behaviour="does not compile"),
            CostStatus.BUILD_FAILED,
            "unknown type name",
        ),
        (tvm_workload(4, 6), tvm_target, CostStatus.VALID, ""),
    ]
    jobs = [
        BuildJob(workload, target, tmp_path / str(index))
        for index, (workload, target, _, _) in enumerate(wanted)
    ]
    ended: list[int] = []
    with LocalBuilder(context, config, PLUGINS) as builder, LocalRunner(config) as runner:
        results = builder.build(jobs, lambda index, _: ended.append(index))
        for job, result, (_, _, status, words) in zip(jobs, results, wanted, strict=True):
            assert result is not None and result.status is status, result
            assert words in result.reason and "\n" not in result.reason
            if status is CostStatus.VALID:
                assert result.library is not None and result.library.exists()
                assert result.build_sec > 0
                assert runner.run(RunJob.in_folder(job.folder)).cost.is_valid
    assert sorted(ended) == list(range(len(jobs)))


def test_inputs_are_positive_only_where_they_must_be(
    context: BuildContext, tvm_target: BackendTarget, tmp_path: Path
) -> None:
    plain = Workload.from_module(native_partition([tensor("x", 50)], op.exp))
    root = Workload.from_module(native_partition([tensor("x", 50)], op.sqrt))
    with LocalBuilder(context, MeasureConfig()) as builder:
        for name, workload in (("plain", plain), ("root", root)):
            (result,) = builder.build([BuildJob(workload, tvm_target, tmp_path / name)])
            assert result is not None and result.status is CostStatus.VALID, result
    (x,) = load_arrays(tmp_path / "plain" / "inputs")
    assert x.min() < 0 < x.max()
    (x,) = load_arrays(tmp_path / "root" / "inputs")
    assert x.min() > 0 and x.std() > 0.1
    np.testing.assert_allclose(load_arrays(tmp_path / "root" / "expected")[0], np.sqrt(x), 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
def test_arrays_survive_their_files(tmp_path: Path, dtype: str) -> None:
    arrays = [np.arange(6).reshape(2, 3).astype(dtype) for _ in range(12)]
    arrays[11] = np.asarray(1).astype(dtype)
    save_arrays(tmp_path, arrays)
    loaded = load_arrays(tmp_path)
    assert [a.dtype for a in loaded] == [a.dtype for a in arrays]
    for a, b in zip(arrays, loaded, strict=True):
        np.testing.assert_array_equal(a.astype("float32"), b.astype("float32"))


def test_what_compilers_leave_when_they_are_killed_goes_with_the_build(
    context: BuildContext,
    tvm_target: BackendTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler, temporary = tmp_path / "cxx", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo "cxx 1"\n'
        'echo > "${TMPDIR:-/tmp}/between.s"\nexec sleep 60\n'
    )
    compiler.chmod(0o755)
    own = replace(context, cxx=str(compiler), cache_dir=tmp_path / "cache")
    job = BuildJob(tvm_workload(4, 6), tvm_target, tmp_path / "build")
    with LocalBuilder(own, MeasureConfig(build_timeout_sec=5.0), parallel=1) as builder:
        (result,) = builder.build([job])
    assert result is not None and result.status is CostStatus.TIMED_OUT
    assert not list(temporary.glob("between.s"))
    assert list(job.folder.rglob("between.s")), "the compiler was run"
