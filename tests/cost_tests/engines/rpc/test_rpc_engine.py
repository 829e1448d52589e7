"""Devices behind TVM's RPC tracker: an engine and a runner like others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage.backends.contract import BuildContext
from collage.cost.config import MeasureConfig
from collage.cost.device import CPU_POLICY
from collage.cost.engines.named import engine_of
from collage.cost.measure.engine import Engine, Work
from collage.cost.measure.runner import Runner
from collage.testing import EngineContract, RunnerContract
from collage.testing.fixtures.rpc_fleet import RpcFleet

pytestmark = pytest.mark.fleet


class TestRpcEngine(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, fleet: RpcFleet) -> Engine:
        return engine_of(fleet.url)


@pytest.mark.slow
class TestRpcRunner(RunnerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, fleet: RpcFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
        folder = tmp_path_factory.mktemp("rpc")
        config = MeasureConfig(
            repeat=3,
            min_repeat=2,
            min_repeat_sec=0.005,
            run_timeout_sec=4.0,
            memory_limit_bytes=1 << 30,
        )
        context = BuildContext(folder / "cache", folder / "work")
        with engine_of(fleet.url).open(Work(CPU_POLICY, context, config)) as workers:
            yield workers.places[0].runner
