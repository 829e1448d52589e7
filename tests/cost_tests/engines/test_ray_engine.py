"""A Ray cluster is an engine like others: held to the contract on several nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage.cost.engines.ray import RayEngine
from collage.cost.measure.engine import Engine
from collage.testing import EngineContract
from collage.testing.fixtures.ray_cluster import LoopbackCluster

pytestmark = [pytest.mark.fleet, pytest.mark.slow]


class TestRayEngine(EngineContract):
    settle_sec = 20.0

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        with LoopbackCluster(tmp_path_factory.mktemp("ray")) as cluster:
            cluster.add("n1", "n2")
            yield RayEngine(cluster.address)
