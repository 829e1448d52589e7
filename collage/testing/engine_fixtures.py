"""What the suite of an engine is run on: its workers, their deadline, and what they are given."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from collage.backends.contract import BuildContext
from collage.cost.config import MeasureConfig
from collage.cost.deadline import Deadline
from collage.cost.device import CPU_POLICY
from collage.cost.measure.builder import Builder, BuildJob
from collage.cost.measure.engine import Engine, Work, Workers
from collage.cost.measure.runner import RunJob
from collage.testing.misbehaving import (
    misbehaving_job,
    misbehaving_target,
    misbehaving_workload,
)

PLUGINS = ["collage.testing.misbehaving:MisbehavingBackend"]
"""What builders must register; their machines need this package with its extra ``testing``."""

CONFIG = MeasureConfig(
    repeat=3,
    min_repeat=2,
    min_repeat_sec=0.005,
    warmup_sec=0.002,
    build_timeout_sec=10.0,
    run_timeout_sec=6.0,
    memory_limit_bytes=1 << 30,
)
"""Limits that are soon over: what hangs here hangs for good."""


class Alarm:
    """A deadline that comes when it is rung, and goes when it is reset.

    Examples
    --------
    >>> alarm = Alarm()
    >>> alarm.ring_after(0.0)
    >>> time.sleep(0.01)
    >>> alarm.deadline.is_up
    True
    """

    def __init__(self) -> None:
        self._end = float("inf")
        self.deadline = Deadline(lambda: self._end)

    def ring_after(self, seconds: float) -> None:
        """Set it."""
        self._end = time.monotonic() + seconds

    def reset(self) -> None:
        """Have all the time in the world again."""
        self._end = float("inf")


class EngineFixtures:
    """The fixtures of :class:`~collage.testing.EngineContract`."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        """Override with the engine under test; it is opened several times.

        Raises
        ------
        NotImplementedError
            When it is not overridden.
        """
        raise NotImplementedError("override the fixture 'engine' with the engine under test")

    @pytest.fixture(scope="class")
    @classmethod
    def alarm(cls) -> Alarm:
        """The deadline of ``work``."""
        return Alarm()

    @pytest.fixture(scope="class")
    @classmethod
    def work(cls, tmp_path_factory: pytest.TempPathFactory, alarm: Alarm) -> Work:
        """What the engine is opened for."""
        folder = tmp_path_factory.mktemp("engine")
        context = BuildContext(folder / "cache", folder / "work", num_threads=1)
        context.work_dir.mkdir()
        return Work(CPU_POLICY, context, CONFIG, parallel_builds=2, deadline=alarm.deadline)

    @pytest.fixture(scope="class")
    @classmethod
    def workers(cls, engine: Engine, work: Work) -> Iterator[Workers]:
        """The engine's; each test must leave them usable."""
        with engine.open(work) as workers:
            yield workers

    @pytest.fixture(scope="class")
    @classmethod
    def builder(cls, workers: Workers) -> Iterator[Builder]:
        """The engine's; each test must leave it usable."""
        with workers.builder(PLUGINS) as builder:
            yield builder

    @pytest.fixture(scope="class")
    @classmethod
    def libraries(cls, builder: Builder, work: Work) -> dict[str, RunJob]:
        """What builders of the engine made, by the behaviour of its kernel."""
        folder = work.context.work_dir / "libraries"
        jobs = {word: build_job(folder / word, word) for word in ("right", "wrong", "null", "hang")}
        results = builder.build(list(jobs.values()))
        assert [result.reason for result in results] == [""] * len(jobs)
        return {word: RunJob.in_folder(job.folder) for word, job in jobs.items()}

    @pytest.fixture(scope="class")
    @classmethod
    def whole_models(cls, work: Work) -> dict[str, Path]:
        """Compiled here, as whole models are."""
        folder = work.context.work_dir / "models"
        return {
            word: misbehaving_job(word, folder / word, work.context).library
            for word in ("right", "sleep", "wrong")
        }


def build_job(
    folder: Path, behaviour: str = "right", build: str = "normal", shape: Sequence[int] = (4, 50)
) -> BuildJob:
    return BuildJob(misbehaving_workload(*shape), misbehaving_target(behaviour, build), folder)
