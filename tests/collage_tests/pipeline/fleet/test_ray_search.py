"""A whole search on a Ray cluster: as on one machine, with a log that replays on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.relax import op

import collage
from collage.cost.device import CPU_POLICY
from collage.cost.engines.ray import RayEngine
from collage.testing import constant, graph
from collage.testing.fixtures.ray_cluster import LoopbackCluster

pytestmark = [pytest.mark.fleet, pytest.mark.slow]

TARGETS = ["llvm", "openblas", "onednn"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    with LoopbackCluster(tmp_path_factory.mktemp("ray")) as cluster:
        cluster.add("n1", "n2")
        yield cluster


def network() -> tvm.IRModule:
    """Convolution, pooling, and two layers that libraries and TVM both take."""

    def body(emit: object, x: object) -> object:
        y = emit(op.nn.conv2d(x, constant(8, 3, 3, 3), padding=1))  # type: ignore[operator]
        y = emit(op.nn.max_pool2d(emit(op.nn.relu(y)), (2, 2), (2, 2)))  # type: ignore[operator]
        y = emit(op.reshape(y, (1, 512)))  # type: ignore[operator]
        y = emit(op.nn.relu(emit(op.matmul(y, constant(512, 64)))))  # type: ignore[operator]
        return op.matmul(y, constant(64, 10))

    return graph([(1, 3, 16, 16)], body)


def test_the_answer_and_the_log_are_those_of_one_machine(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    """A strict replay on this machine finds every cost under the key that it would make itself."""
    mod, log = network(), tmp_path / "log.jsonl"
    engine = RayEngine(cluster.address, patience_sec=20.0)
    there = collage.optimize(mod, TARGETS, log=log, workers=engine)
    assert there.report.device["name"] == CPU_POLICY.detect().name
    timed = {use.name: use.tasks for use in there.report.workers}
    assert timed.keys() <= {"n1 cpu", "n2 cpu"} and timed
    again = collage.optimize(mod, TARGETS, log=log, replay=True)
    assert again.report.search.measured == 0 < there.report.search.measured
    assert again.module.script() == there.module.script()
    x = np.random.default_rng().standard_normal((1, 3, 16, 16), np.float32)
    alone = collage.optimize(mod, ["llvm"], log=tmp_path / "alone.jsonl", time_budget_sec=60.0)
    one, other = (
        collage.load(result.export(tmp_path / name))(x)
        for result, name in ((there, "there"), (alone, "alone"))
    )
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * float(np.abs(other).max()))
    assert cluster.wait_until_ended(cluster.actors(), 60.0), "closing ended all"
