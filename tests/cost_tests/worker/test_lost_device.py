"""A candidate that takes the device along is to blame for it, and for nothing that comes after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from collage.cost.base import Clocks, CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.measure.local_runner import LocalRunner
from collage.cost.measure.runner import RunJob
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.reference import Sample
from collage.cost.worker.build import test_data as make_test_data
from tests.cost_tests.conftest import Library, ToyTarget, toy_workload
from tests.cost_tests.worker.fragile_device import FragileRunner, fragile_policy


@contextmanager
def runner_on(config: MeasureConfig, how: str) -> Iterator[FragileRunner]:
    with FragileRunner(config, policy=fragile_policy(how)) as runner:
        yield runner


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("fatal", CostStatus.CRASHED, "broke the context: bad"),
        ("blocked", CostStatus.RUN_FAILED, "broke the context: bad"),
        ("sound", CostStatus.RUN_FAILED, "ValueError: the kernel does not like it"),
    ],
)
def test_a_failure_that_takes_the_device_along(
    config: MeasureConfig, library: Library, how: str, status: CostStatus, reason: str
) -> None:
    with runner_on(config, how) as runner:
        assert runner.run(library("right")).cost.is_valid
        first = runner.pid
        cost = runner.run(library("raise")).cost
        assert (cost.status, cost.reason) == (status, reason)
        # Even where nothing was lost: CUDA keeps an error for whoever asks next.
        assert runner.pid != first
        # The fresh process has a device that nobody has broken.
        assert runner.run(library("right")).cost.is_valid


def test_a_call_that_stood_still_once_is_no_cost(config: MeasureConfig, library: Library) -> None:
    with runner_on(config, "stalling") as runner:
        cost = runner.run(library("right")).cost
    assert cost.is_valid and len(cost.samples_sec) > 1
    assert cost.median_sec < config.slow_call_sec


@pytest.mark.parametrize("behaviour", ["abort", "null"])
def test_a_process_that_dies_is_replaced_and_its_candidate_is_to_blame(
    config: MeasureConfig, library: Library, behaviour: str
) -> None:
    with runner_on(config, "fatal") as runner:
        assert runner.run(library("right")).cost.is_valid
        first = runner.pid
        assert runner.run(library(behaviour)).cost.status is CostStatus.CRASHED
        assert runner.run(library("right")).cost.is_valid
        assert runner.pid != first


def test_a_process_whose_device_is_full_is_replaced(
    config: MeasureConfig, library: Library
) -> None:
    with runner_on(config, "full") as runner:
        assert runner.run(library("right")).cost.is_valid
        assert runner.pid is None
        assert runner.run(library("right")).cost.is_valid


def test_clocks_come_with_the_times(config: MeasureConfig, library: Library) -> None:
    with runner_on(config, "sound") as runner:
        assert runner.run(library("right")).clocks == Clocks(1980, 3201)
        assert runner.run(library("wrong")).clocks is None


def test_a_whole_model_that_loses_its_device_is_out_and_the_others_are_timed(
    config: MeasureConfig, library: Library, toy: ToyTarget, tmp_path: Path
) -> None:
    workload = toy_workload(4, 1000)
    sample = make_test_data(workload, workload.materialize(), 0)
    jobs = {name: library(name).library for name in ("right", "raise", "sleep")}

    def model(name: str) -> WholeModel:
        return WholeModel(name, name, (toy(),))

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    timer = EndToEndTimer(config, scratch, policy=fragile_policy("fatal"))
    question = EndToEndQuestion([model(name) for name in jobs], [sample], rounds=2)
    results = timer.measure(question, list(jobs.values()))
    statuses = [result.cost.status for result in results]
    assert statuses == [CostStatus.VALID, CostStatus.CRASHED, CostStatus.VALID]
    assert results[0].clocks == Clocks(1980, 3201)


def test_half_precision_is_compared_less_closely(
    config: MeasureConfig, library: Library, tmp_path: Path
) -> None:
    """What a target computes with fewer digits than its tensors have."""
    job = library("right")
    sample = Sample.load(job.sample)
    (wanted,) = sample.expected
    off = Sample.of(sample.inputs, [np.asarray(wanted) * np.float32(1.0015)])
    off.save(tmp_path / "strict")
    noise = tuple(dataclasses.replace(noise, form="float16") for noise in off.noise)
    dataclasses.replace(off, noise=noise).save(tmp_path / "loose")
    with LocalRunner(config) as runner:
        strict = runner.run(RunJob(job.library, tmp_path / "strict"))
        assert strict.cost.status is CostStatus.WRONG_RESULT
        assert "off by 0.0015 of its largest value (at most 0.001)" in strict.cost.reason
        result = runner.run(RunJob(job.library, tmp_path / "loose"))
        assert result.cost.is_valid and 1e-3 < result.largest_error < 2e-3
