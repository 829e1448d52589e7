"""This machine is an engine like others."""

from __future__ import annotations

import pytest

from collage.cost.engines import LocalEngine
from collage.cost.measure.engine import Engine
from collage.testing import EngineContract


class TestLocalEngine(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        return LocalEngine()
