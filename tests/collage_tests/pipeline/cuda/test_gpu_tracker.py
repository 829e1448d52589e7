"""A search on a real GPU behind TVM's RPC tracker, all of it on loopback.

``pytest -m gpu tests/collage_tests/pipeline/cuda/test_gpu_tracker.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import collage
from collage.backends.toolchain.cuda_runtime import has_device
from collage.cost.database import JsonLinesDatabase
from collage.cost.database.record import PARTITION
from collage.testing.fixtures.rpc_fleet import RpcFleet
from tests.collage_tests.pipeline.cuda import gpu_models

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.fleet,
    pytest.mark.skipif(not has_device(), reason="there is no CUDA device"),
]

TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def fleet() -> Iterator[RpcFleet]:
    """One server, since one machine's GPU is all there is."""
    with RpcFleet(1, "card") as fleet:
        yield fleet


@pytest.mark.parametrize("name", ["mixed", "transformer"])
def test_what_a_server_timed_is_measured_and_right(
    name: str, fleet: RpcFleet, tmp_path: Path
) -> None:
    model = {"mixed": gpu_models.mixed, "transformer": gpu_models.transformer}[name]("float16")
    log = tmp_path / "log.jsonl"
    targets = ["cuda", "cublas", "cudnn"]
    result = collage.optimize(model.module, targets, workers=fleet.url, log=log)
    records = [r for r in JsonLinesDatabase(log).records() if r.key.kind == PARTITION]
    failures = {r.cost.reason for r in records if not r.cost.is_valid}
    valid = {json.loads(r.key.target)["backend"] for r in records if r.cost.is_valid}
    assert {"tvm", "cublas"} <= valid and not failures, failures
    (use,) = result.report.workers
    assert use.tasks["whole models"] > 0 and not use.left_out, use
    rows = {row.name: row for row in result.report.end_to_end}
    assert all(row.median_sec is not None for row in rows.values()), rows
    bundle = collage.load(result.export(tmp_path / "bundle"))
    for seed in (11, 12):
        x = model.input(seed)
        model.check(x, bundle(x), TOLERANCE)
