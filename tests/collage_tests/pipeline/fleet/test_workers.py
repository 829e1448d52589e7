"""A search asks the workers that it is given what is measured on, and whether they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import collage
from collage.backends.contract.errors import MeasurementError, TargetError, WorkersError
from collage.backends.devices import CPU
from collage.cost import MeasureConfig, MeasuredCostModel, TableCostModel
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.device import CPU_POLICY, CUDA_POLICY, Device, DevicePolicy, policy_of
from collage.cost.engines import LocalEngine
from collage.cost.measure.engine import Engine, Work, WorkerInfo, Workers
from collage.pipeline import open_session
from collage.testing import graph

TARGETS = ["llvm", "openblas"]
FAR = replace(policy_of(CPU).detect(), name="A processor elsewhere", cores=3)


class Elsewhere(Engine):
    """This machine's workers, as if they were another's: compiling here does not disturb them."""

    def __init__(self, device: Device = FAR) -> None:
        self.device = device
        self.opened: list[Workers] = []

    def open(self, work: Work) -> Workers:
        workers = LocalEngine().open(work)
        workers.device, workers.builds_beside = self.device, True
        self.opened.append(workers)
        return workers

    def inspect(self, policy: DevicePolicy) -> list[WorkerInfo]:
        return []


class Nobody(Elsewhere):
    def open(self, work: Work) -> Workers:
        raise MeasurementError("nobody answers at tracker:9190", value="tracker:9190")


@pytest.fixture
def module() -> tvm.IRModule:
    weights = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    return graph(
        [(4, 8)],
        lambda emit, x: tvm.relax.op.nn.relu(
            emit(tvm.relax.op.matmul(x, tvm.relax.const(weights)))
        ),
    )


@pytest.mark.parametrize("budget_sec", [None, 120.0])
def test_what_is_measured_on_is_the_workers(
    module: tvm.IRModule, tmp_path: Path, budget_sec: float | None
) -> None:
    engine, log = Elsewhere(), tmp_path / "log.jsonl"
    result = collage.optimize(module, ["llvm"], log=log, workers=engine, time_budget_sec=budget_sec)
    assert len(engine.opened) == 1
    assert result.report.device["name"] == FAR.name and result.report.device["threads"] == "3"
    records = list(JsonLinesDatabase(log, read_only=True).records())
    assert records and {record.key.device for record in records} == {CPU_POLICY.device_key(FAR)}
    assert {record.key.num_threads for record in records} == {3}
    x = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    assert np.isfinite(collage.load(result.export(tmp_path / "bundle"))(x)).all()


def test_with_the_same_workers_nothing_is_measured_again(
    module: tvm.IRModule, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    first, again = (
        collage.optimize(module, ["llvm"], log=log, num_threads=1, workers=Elsewhere())
        for _ in range(2)
    )
    assert first.report.search.measured > 0 == again.report.search.measured
    assert again.module.script() == first.module.script()
    (use,) = first.report.workers
    timed = dict(use.tasks)
    assert use.name == "cpu" and timed.pop("whole models") >= 1
    # Whole models that were timed are in the log, too.
    assert 0 < sum(timed.values()) < first.report.search.measured
    assert use.busy_sec > 0 and use.share is not None and 0 < use.share <= 1
    assert first.report.builders.built == sum(timed.values())
    assert not again.report.workers and not again.report.builders.built


def test_workers_that_cannot_be_reached_are_told_before_the_model_is_read(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="nobody answers at tracker:9190"):
        collage.optimize(tmp_path / "no_such_model.onnx", TARGETS, workers=Nobody())


def test_a_processor_that_this_machine_s_code_is_not_for(module: tvm.IRModule) -> None:
    other = Elsewhere(replace(FAR, features="0123456789ab"))
    with pytest.raises(TargetError, match=r"which the workers' \(A processor elsewhere.*llvm:mcpu"):
        collage.optimize(module, TARGETS, workers=other)
    assert other.opened, "it was asked"
    assert not CPU_POLICY.misfit("x86-64-v2", other.device), "somebody who names it knows it"


@pytest.mark.parametrize(
    ("arch", "features", "fits"),
    [("sm_90a", "sm_90", True), ("sm_90", "sm_90", True), ("sm_80", "sm_90", False)],
)
def test_a_gpu_s_architecture_has_to_be_the_target_s(arch: str, features: str, fits: bool) -> None:
    gpu = Device("cuda", "NVIDIA H200", 132, features, "CUDA 13.0", 143_771)
    reason = CUDA_POLICY.misfit(arch, gpu)
    assert (not reason) == fits
    assert fits or f"name that, for example cuda:arch={features}" in reason


def test_a_replay_has_nothing_to_do_for_workers(module: tvm.IRModule, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    with pytest.raises(WorkersError, match="a replay takes every cost from the log"):
        collage.optimize(module, TARGETS, log=log, replay=True, workers=Elsewhere())


def test_a_cost_model_has_workers_of_its_own(module: tvm.IRModule) -> None:
    with pytest.raises(WorkersError, match="a cost model has workers of its own"):
        collage.optimize(module, TARGETS, cost_model=TableCostModel({}), workers=Elsewhere())
    mine = open_session(TARGETS, num_threads=1)  # Its scratch folder lives as long as it does.
    config = MeasureConfig(repeat=2, min_repeat=1, min_repeat_sec=0.001, warmup_sec=0.001)
    with MeasuredCostModel(mine.context, config=config, engine=Elsewhere()) as model:
        result = collage.optimize(module, ["llvm"], num_threads=1, cost_model=model)
    assert result.report.device["name"] == FAR.name


def test_a_name_that_nobody_has_is_told_first(tmp_path: Path) -> None:
    with pytest.raises(WorkersError, match="there are no workers 'slurm'"):
        collage.optimize(tmp_path / "no_such_model.onnx", ["no such target"], workers="slurm://a:1")
