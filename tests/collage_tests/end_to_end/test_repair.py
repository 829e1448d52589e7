"""Partitions that a library refuses are undone: the model's meaning stays, TVM runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from benchmarks.gpu.cases.tensorrt._case import module, weights
from collage.backends.contract import BackendTarget, BuildContext, TargetSet
from collage.backends.contract.errors import ReplayMissError
from collage.backends.contract.registry import get_backend
from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.cost.base import Cost, CostStatus
from collage.cost.models.roofline import RooflineCostModel
from collage.cost.progress import ProgressEvent
from collage.cost.reference import evaluate
from collage.cost.workload.workload import Workload
from collage.end_to_end import Contender
from collage.end_to_end.repair import PartitionRepair, without
from collage.normalize import normalize
from collage.passes import lower, partition_names
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.without_costs import greedy, single_backend
from tests.backends_tests.tensorrt import support
from tests.object_cache import cache_with_objects

needs_tensorrt = pytest.mark.cuda

SHAPE = (2, 4, 9, 11)


def _network(x: relax.Expr) -> relax.Expr:
    """Two parts that a sum over the batch, TVM's, keeps apart; TensorRT refuses the second one."""
    first = op.nn.relu(op.nn.conv2d(x, weights(4, 4, 3, 3, seed=1), padding=1))
    between = op.cumsum(first, 0)
    second = op.nn.conv2d_transpose(between, weights(4, 3, 3, 3, seed=2), strides=2)
    return op.nn.relu(second)


@pytest.fixture
def model() -> tvm.IRModule:
    return normalize(module([(SHAPE, "float32")], _network))


@pytest.fixture
def graph(model: tvm.IRModule) -> DataflowGraph:
    return DataflowGraph.from_function(model["main"], model)


def _repair_of(
    model: tvm.IRModule, graph: DataflowGraph, folder: Path, **how: Any
) -> tuple[PartitionRepair, WorkloadCosts, list[ProgressEvent]]:
    costs = WorkloadCosts(model, graph, how.pop("cost_model", RooflineCostModel()))
    events: list[ProgressEvent] = []
    context = BuildContext(cache_with_objects(folder), folder / "work", **how)
    repair = PartitionRepair(model, graph, support.native(), context, costs, events.append)
    return repair, costs, events


def test_undoing_by_hand_keeps_the_meaning(model: tvm.IRModule, graph: DataflowGraph) -> None:
    """With a backend of the CPU: nothing here needs CUDA."""
    device = tvm.target.Target("llvm")
    native, library = (BackendTarget.of(name, device) for name in ("tvm", "onednn"))
    partitioning = single_backend(graph, library, native)
    names = partition_names(partitioning)
    assert sum(name.startswith("onednn") for name in names) >= 2
    undone = without(graph, partitioning, {names["onednn_0"]}, native)
    kept = [c for c in undone.candidates if c.backend == "onednn"]
    assert kept == [c for name, c in names.items() if name.startswith("onednn_")][1:]
    assert sum(c.nodes for c in undone.candidates) == graph.all_nodes
    inputs = support.random_inputs(model)
    expected = evaluate(model, inputs)
    for each in (partitioning, undone):
        for got, wanted in zip(evaluate(lower(model, graph, each), inputs), expected, strict=True):
            assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@needs_tensorrt
def test_a_refused_region_goes_back_to_tvm(
    model: tvm.IRModule, graph: DataflowGraph, tmp_path: Path
) -> None:
    pytest.importorskip("tensorrt_rtx")
    # In bfloat16 TensorRT for RTX has no transposed convolution, as it says while it builds.
    target = support.target(use_bf16=True)
    before = Contender("greedy", greedy(graph, TargetSet(support.native(), (target,))))
    repair, costs, events = _repair_of(model, graph, tmp_path)
    after = repair.repair(before)
    held = partition_names(before.partitioning)
    (refusal,) = repair.refusals
    assert refusal.candidate == held["tensorrt_1"] and "deconv" in refusal.reason
    assert [c for c in after.partitioning.candidates if c.backend == "tensorrt"] == [
        held["tensorrt_0"]
    ]
    assert costs.costs[refusal.candidate].status is CostStatus.BUILD_FAILED
    assert costs.costs[refusal.candidate].reason == refusal.reason
    (event,) = events
    assert event.stage == "repair" and refusal.reason in event.message
    operators = {graph.op_name(r.node) for r in repair.rejections()}
    assert operators == {"nn.conv2d_transpose", "nn.relu"}
    assert all(r.backend == "tensorrt" and r.reason == refusal.reason for r in repair.rejections())
    inputs = support.random_inputs(model)
    (expected,) = evaluate(model, inputs)
    for partitioning in (before.partitioning, after.partitioning):
        (got,) = evaluate(lower(model, graph, partitioning), inputs)
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


@needs_tensorrt
def test_what_is_accepted_stays_as_it_was(
    model: tvm.IRModule, graph: DataflowGraph, tmp_path: Path
) -> None:
    pytest.importorskip("tensorrt_rtx")
    contender = Contender("greedy", greedy(graph, TargetSet(support.native(), (support.target(),))))
    repair, _, events = _repair_of(model, graph, tmp_path)
    assert repair.repair(contender) is contender
    assert not repair.refusals and not events


@needs_tensorrt
def test_a_replay_asks_the_log_alone(
    model: tvm.IRModule, graph: DataflowGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorrt_rtx")
    target = support.target(use_bf16=True)
    contender = Contender("greedy", greedy(graph, TargetSet(support.native(), (target,))))

    class Log(RooflineCostModel):
        """Knows of one failure only."""

        def estimate(self, workloads: Any, targets: Any) -> Any:
            (workload,) = workloads
            if "conv2d_transpose" not in workload.module.script():
                raise ReplayMissError("the log has no such workload")
            from collage.cost.base import Cost

            return [Cost(CostStatus.BUILD_FAILED, reason="as the log has it")]

    def forbidden(*_: Any) -> None:
        raise AssertionError("a replay compiles nothing")

    monkeypatch.setattr(get_backend("tensorrt"), "refusals", forbidden)
    repair, _, _ = _repair_of(model, graph, tmp_path, cost_model=Log(), replay=True)
    after = repair.repair(contender)
    assert [refusal.reason for refusal in repair.refusals] == ["as the log has it"]
    assert sum(c.backend == "tensorrt" for c in after.partitioning.candidates) == 1


@needs_tensorrt
@pytest.mark.parametrize("strategy", ["greedy", "single:tensorrt"])
def test_optimize_compiles_around_a_refusal(strategy: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    events: list[ProgressEvent] = []
    result = collage.optimize(
        module([(SHAPE, "float32")], _network),
        [
            {"kind": "cuda", "arch": support.ARCH, "max_threads_per_block": 1024,
             "max_shared_memory_per_block": 49152},
            {"kind": "tensorrt", "use_bf16": True, "timing_cache": str(tmp_path / "timings")},
        ],
        strategy=strategy,
        cost_model=RooflineCostModel(),
        progress=events.append,
    )  # fmt: skip
    backends = [c.backend for c in result.partitioning.candidates if not c.inline]
    assert backends.count("tensorrt") == 1 and "tvm" in backends
    assert [e.stage for e in events].count("repair") == 1
    assert "Could not infer output types" in result.report.to_json()
    bundle = result.export(tmp_path / "bundle")
    manifest = json.loads((Path(bundle) / "manifest.json").read_text())
    version = support.installed().version
    assert manifest["runtimes"] == {"tensorrt": f"python:tensorrt_rtx:{version}"}


@pytest.mark.parametrize("status", ["build_failed", "run_failed", "crashed", "wrong_result"])
@pytest.mark.parametrize("origin", ["greedy", "single"])
def test_a_partition_that_failed_when_it_was_measured_goes_back_to_tvm(
    model: tvm.IRModule, graph: DataflowGraph, tmp_path: Path, origin: str, status: str
) -> None:
    """Whoever put it into a partitioning: it would fail there, too."""
    device = tvm.target.Target("llvm")
    native, onednn = (BackendTarget.of(name, device) for name in ("tvm", "onednn"))
    targets = TargetSet(native, (onednn,))
    found = greedy(graph, targets) if origin == "greedy" else single_backend(graph, onednn, native)
    names = partition_names(found)
    bad = names["onednn_0"]
    workload = WorkloadCosts(model, graph, TableCostModel({})).workload(bad)
    failure = Cost(CostStatus(status), reason="no such luck")
    costs = WorkloadCosts(model, graph, Recorded({(workload.key, "onednn"): failure}))
    repair = PartitionRepair(
        *(
            model,
            graph,
            native,
            BuildContext(cache_with_objects(tmp_path), tmp_path / "work"),
            costs,
        )
    )
    repaired = repair.repair(Contender(origin, found)).partitioning
    assert bad not in repaired.candidates
    kept = {c for c in found.candidates if c.backend == "onednn"} - {bad}
    assert {c for c in repaired.candidates if c.backend == "onednn"} == kept
    (refusal,) = repair.refusals
    assert (refusal.candidate, refusal.reason) == (bad, "no such luck")
    assert {r.node for r in repair.rejections()} == {
        index for index in range(len(graph)) if bad.nodes >> index & 1
    }
    inputs = support.random_inputs(model)
    (got,) = evaluate(lower(model, graph, repaired), inputs)
    np.testing.assert_allclose(got, evaluate(model, inputs)[0], rtol=1e-4, atol=1e-4)


class Recorded(TableCostModel):
    """A table that is a log, too."""

    def recorded(self, workload: Workload, target: BackendTarget) -> Cost | None:
        cost = self.estimate([workload], [target])[0]
        return None if cost.status is CostStatus.UNKNOWN else cost
