"""The suite that any runner must pass."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from collage.backends.contract import BuildContext
from collage.cost.base import CostStatus
from collage.cost.measure.runner import RunJob, Runner
from collage.testing.fixtures.leftovers import children
from collage.testing.fixtures.misbehaving import misbehaving_job

_SETTLE_SEC = 5.0
"""What a runner started on another machine may end a moment after the runner."""

Library = Callable[[str], RunJob]
"""Builds a library that behaves as the word says."""


class RunnerContract:
    """Behaviour that a search relies on, whatever the device.

    Derive a test class and override the fixture ``runner``; for a device that is not a processor
    also ``library``. The runner must have a time limit of a few seconds for a run and a memory
    limit of at most one GiB.

    Attributes
    ----------
    limits_address_space : bool
        Whether the runner keeps a kernel from reserving memory that it never touches. Drivers of
        devices reserve far more than there is.

    Examples
    --------
    >>> from collage.cost.config import MeasureConfig
    >>> from collage.cost.measure.local_runner import LocalRunner
    >>> class TestLocalRunner(RunnerContract):
    ...     @pytest.fixture
    ...     def runner(self):
    ...         with LocalRunner(MeasureConfig(run_timeout_sec=5.0)) as runner:
    ...             yield runner
    """

    limits_address_space: ClassVar[bool] = True

    @pytest.fixture
    def runner(self) -> Runner:
        """Override with the runner under test; it may be shared between tests.

        Raises
        ------
        NotImplementedError
            When it is not overridden.
        """
        raise NotImplementedError("override the fixture 'runner' with the runner under test")

    @pytest.fixture(scope="class")
    @classmethod
    def library(cls, tmp_path_factory: pytest.TempPathFactory) -> Library:
        """Builds kernels for a processor; override for another device."""
        folder = tmp_path_factory.mktemp("libraries")
        context = BuildContext(folder / "cache", folder / "work", num_threads=1)
        return functools.cache(lambda word: misbehaving_job(word, folder / word, context))

    def test_a_right_kernel_is_timed(self, runner: Runner, library: Library) -> None:
        result = runner.run(library("sleep"))
        cost = result.cost
        assert cost.status is CostStatus.VALID and cost.reason == ""
        # The kernel sleeps two milliseconds; waking up may take longer, never shorter.
        assert 2e-3 <= cost.median_sec < 2e-2
        assert min(cost.samples_sec) <= cost.median_sec <= max(cost.samples_sec)
        assert 0.0 <= cost.spread_sec <= max(cost.samples_sec) - min(cost.samples_sec)
        assert result.largest_error < 1e-6 and result.first_call_sec >= 2e-3

    @pytest.mark.parametrize(
        ("behaviour", "status", "words"),
        [
            ("wrong", CostStatus.WRONG_RESULT, "output 0 is off by"),
            ("nan", CostStatus.WRONG_RESULT, "output 0 is off by inf"),
            ("wrong later", CostStatus.WRONG_RESULT, "after repeated calls"),
            ("null", CostStatus.CRASHED, "SIGSEGV"),
            ("abort", CostStatus.CRASHED, "SIGABRT"),
            ("exit", CostStatus.CRASHED, "exit status 7"),
            ("hang", CostStatus.TIMED_OUT, "no answer within"),
            ("eat", CostStatus.OUT_OF_MEMORY, "MiB of memory"),
            ("raise", CostStatus.RUN_FAILED, "the kernel does not like it"),
        ],
    )
    def test_a_bad_kernel_is_an_invalid_cost_and_the_next_one_is_timed(
        self, runner: Runner, library: Library, behaviour: str, status: CostStatus, words: str
    ) -> None:
        bad = runner.run(library(behaviour)).cost
        assert (bad.status, bad.is_valid) == (status, False)
        assert words in bad.reason and "\n" not in bad.reason
        assert math.isinf(bad.median_sec) and bad.samples_sec == ()
        assert runner.run(library("right")).cost.is_valid

    @pytest.mark.parametrize("behaviour", ["greedy", "corrupt"])
    def test_whatever_happens_is_an_invalid_cost(
        self, runner: Runner, library: Library, behaviour: str
    ) -> None:
        if not self.limits_address_space:
            pytest.skip("the device's driver reserves more memory than there is")
        assert not runner.run(library(behaviour)).cost.is_valid
        assert runner.run(library("right")).cost.is_valid

    @pytest.mark.parametrize("behaviour", ["right", "wrong", "null", "raise"])
    def test_a_shared_device_is_taken_and_let_go_whatever_happens(
        self, runner: Runner, library: Library, behaviour: str
    ) -> None:
        """Whether it was waited for makes no difference to what comes out."""
        turns: list[str] = []

        @contextmanager
        def device_lock() -> Iterator[None]:
            turns.append("taken")
            try:
                yield
            finally:
                turns.append("free")

        shared = runner.run_sharing(library(behaviour), device_lock).cost
        assert turns in (["taken", "free"], ["taken", "free"] * 2), "twice where it was to be sure"
        assert shared.status is runner.run(library(behaviour)).cost.status

    def test_what_a_kernel_prints_is_no_answer(self, runner: Runner, library: Library) -> None:
        """It prints what looks like one."""
        result = runner.run(library("print"))
        assert result.cost.is_valid and result.cost.samples_sec

    def test_a_hopelessly_slow_kernel_is_timed_only_once(
        self, runner: Runner, library: Library
    ) -> None:
        begin = time.monotonic()
        cost = runner.run(library("slow")).cost
        assert cost.is_valid and len(cost.samples_sec) == 1
        assert cost.median_sec >= 1.5 and time.monotonic() - begin < 15

    def test_a_missing_library_is_an_invalid_cost(
        self, runner: Runner, library: Library, tmp_path: Path
    ) -> None:
        job = library("right")
        missing = RunJob(tmp_path / "no such.so", job.sample)
        cost = runner.run(missing).cost
        assert cost.status is CostStatus.RUN_FAILED and "no such.so" in cost.reason

    def test_closing_ends_every_process(self, runner: Runner, library: Library) -> None:
        before = children()
        assert runner.run(library("right")).cost.is_valid
        runner.close()
        end = time.monotonic() + _SETTLE_SEC
        while time.monotonic() < end and children() - before:
            time.sleep(0.05)
        assert children() <= before
        assert runner.run(library("right")).cost.is_valid, "a closed runner starts anew"
