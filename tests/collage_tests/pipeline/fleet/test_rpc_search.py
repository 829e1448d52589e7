"""A whole search whose candidates and models are timed behind TVM's RPC tracker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.relax import op

import collage
from collage.cost.base import CostStatus
from collage.cost.database.jsonl import JsonLinesDatabase
from collage.cost.device import CPU_POLICY
from collage.cost.progress import ProgressEvent
from collage.testing import graph
from collage.testing.fixtures.rpc_fleet import RpcFleet

pytestmark = [pytest.mark.fleet, pytest.mark.slow]

TARGETS = ["llvm", "onednn", "openblas"]


@pytest.fixture
def fleet() -> Iterator[RpcFleet]:
    with RpcFleet(2) as fleet:
        yield fleet


def network(weights: np.ndarray) -> tvm.IRModule:
    """One that each of the targets has a part in."""
    return graph(
        [(1, 3, 12, 12)],
        lambda emit, x: emit(
            op.matmul(
                op.reshape(
                    emit(op.nn.relu(emit(op.nn.conv2d(x, tvm.relax.const(weights), padding=1)))),
                    (8, 144),
                ),
                tvm.relax.const(np.repeat(weights.reshape(-1, 27), 144 // 8, 0)[:144]),
            )
        ),
    )


def expected(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    convolved = np.einsum("chwij,ocij->ohw", windows, weights)
    second = np.repeat(weights.reshape(-1, 27), 144 // 8, 0)[:144]
    return np.maximum(convolved, 0).reshape(8, 144) @ second


def test_a_search_survives_its_servers_and_its_log_is_as_good_as_one_of_here(
    fleet: RpcFleet, tmp_path: Path
) -> None:
    """One server is killed once something is measured, and another one comes."""
    log, lost = tmp_path / "log.jsonl", []
    weights = np.random.default_rng().standard_normal((8, 3, 3, 3)).astype("float32")

    def watch(event: ProgressEvent) -> None:
        if event.stage == "measure" and event.done == 2 and not lost:
            lost.append("killed")
            fleet.kill_server(0)
            fleet.add_server()
        if event.stage == "lost":
            lost.append(event.message)

    module = network(weights)
    result = collage.optimize(
        module, TARGETS, log=log, workers=fleet.url, num_threads=1, progress=watch
    )
    assert lost[0] == "killed"
    records = list(JsonLinesDatabase(log, read_only=True).records())
    assert {record.cost.status for record in records} == {CostStatus.VALID}
    keys = [record.key for record in records]
    assert len(set(keys)) == len(keys)
    # The device there has the fingerprint that it has here: it is the same.
    assert {key.device for key in keys} == {CPU_POLICY.device_key(CPU_POLICY.detect())}
    again = collage.optimize(module, TARGETS, log=log, replay=True, num_threads=1)
    assert again.partitioning == result.partitioning

    x = np.random.default_rng().standard_normal((1, 3, 12, 12)).astype("float32")
    y = collage.load(result.export(tmp_path / "bundle"))(x)
    wanted = expected(weights, x)
    assert np.abs(y - wanted).max() <= 1e-4 * np.abs(wanted).max()
