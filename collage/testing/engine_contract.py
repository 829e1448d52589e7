"""The suite that any engine must pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import OutOfTimeError
from collage.cost.base import CostStatus
from collage.cost.deadline import Deadline
from collage.cost.device import CPU_POLICY
from collage.cost.measure.builder import Builder, BuildJob, BuildResult
from collage.cost.measure.engine import Engine, Place, Work, Workers
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.runner import RunJob, RunResult
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.progress import ignore
from collage.cost.reference import Sample
from collage.testing.fixtures.engine_fixtures import (
    CONFIG,
    PLUGINS,
    Alarm,
    EngineFixtures,
    build_job,
)
from collage.testing.fixtures.leftovers import candidate_libraries, children, new_threads
from collage.testing.fixtures.misbehaving import misbehaving_target

_PROMPT_SEC = 0.75 * min(CONFIG.build_timeout_sec, CONFIG.run_timeout_sec)
"""What ends at a deadline must not seem to because its own limit is over."""


class EngineContract(EngineFixtures):
    """Behaviour that a search relies on, wherever things are built and timed.

    Derive a test class and override the fixture ``engine``, which must be of the scope ``class``
    or a wider one. What is built and timed is for processors.

    Attributes
    ----------
    settle_sec : float
        How long what was ended or given up may take to be gone.

    Examples
    --------
    >>> from collage.cost.engines import LocalEngine
    >>> class TestLocalEngine(EngineContract):
    ...     @pytest.fixture(scope="class")
    ...     @classmethod
    ...     def engine(cls):
    ...         return LocalEngine()
    """

    settle_sec: ClassVar[float] = 5.0

    def test_there_are_places_on_one_kind_of_device(self, workers: Workers) -> None:
        names = [place.name for place in workers.places]
        assert names and len(set(names)) == len(names) and all(names)
        assert workers.device.kind == CPU_POLICY.kind.name and workers.device.name
        assert workers.parallel_builds >= 1

    def test_what_was_built_lies_in_the_folder_of_its_job(
        self, builder: Builder, tmp_path: Path
    ) -> None:
        jobs = [build_job(tmp_path / str(n), shape=(n + 2, 7)) for n in range(5)]
        told: list[tuple[int, BuildResult, int]] = []

        def done(index: int, result: BuildResult) -> None:
            told.append((index, result, threading.get_ident()))

        results = builder.build(jobs, done)
        assert builder.build([]) == []
        assert sorted((index, result.build_sec) for index, result, _ in told) == [
            (index, result.build_sec) for index, result in enumerate(results)
        ]
        assert {thread for _, _, thread in told} == {threading.get_ident()}
        for n, (job, result) in enumerate(zip(jobs, results, strict=True)):
            assert result.status is CostStatus.VALID and result.build_sec > 0, result
            assert result.library == job.folder / "model.so" and result.library.is_file()
            sample = Sample.load(job.folder)
            (x,), (y,) = sample.inputs, sample.expected
            assert x.shape == (n + 2, 7)
            np.testing.assert_array_equal(np.maximum(x, 0.0), y)

    def test_builders_take_more_while_others_are_at_work(
        self, builder: Builder, tmp_path: Path
    ) -> None:
        """Each job follows from an earlier result, as those of a search do."""
        first, left = build_job(tmp_path / "first", shape=(2, 5)), 4
        told: list[int] = []
        wanted: list[BuildJob] = []

        def done(index: int, result: BuildResult) -> None:
            assert result.status is CostStatus.VALID, result
            told.append(index)
            if len(told) <= left:
                wanted.append(build_job(tmp_path / str(index), shape=(2 + len(told), 5)))

        results = builder.build([first], done, lambda: wanted.pop() if wanted else None)
        assert sorted(told) == list(range(1 + left)) and len(results) == 1 + left
        assert all(result.library and result.library.is_file() for result in results)
        wanted.append(build_job(tmp_path / "alone", shape=(9, 9)))
        (alone,) = builder.build([], more=lambda: wanted.pop() if wanted else None)
        assert alone.library == tmp_path / "alone" / "model.so" and alone.library.is_file()
        assert builder.build([], more=lambda: None) == []

    def test_bad_builds_are_invalid_results_and_the_others_are_built(
        self, builder: Builder, tmp_path: Path
    ) -> None:
        wanted = [
            ("right", "normal", CostStatus.VALID, ""),
            ("right", "die", CostStatus.CRASHED, "SIGABRT"),
            ("right", "refuse", CostStatus.BUILD_FAILED, "does not want to"),
            ("right", "hang", CostStatus.TIMED_OUT, "no answer within"),
            ("does not compile", "normal", CostStatus.BUILD_FAILED, "unknown type name"),
            ("right", "normal", CostStatus.VALID, ""),
        ]
        jobs = [
            build_job(tmp_path / str(n), behaviour, build, (3, n + 1))
            for n, (behaviour, build, _, _) in enumerate(wanted)
        ]
        results = builder.build(jobs)
        for result, (_, _, status, words) in zip(results, wanted, strict=True):
            assert result.status is status, result
            assert words in result.reason and "\n" not in result.reason
            assert (result.library is None) == (status is not CostStatus.VALID)

    def test_every_place_checks_and_times(
        self, workers: Workers, libraries: dict[str, RunJob]
    ) -> None:
        for place in workers.places:
            right = place.runner.run(libraries["right"])
            assert right.cost.is_valid and 0 < right.cost.median_sec < 1.0, right
            assert right.largest_error < 1e-6 and right.run_sec > 0
            wrong = place.runner.run(libraries["wrong"]).cost
            assert wrong.status is CostStatus.WRONG_RESULT and "off by" in wrong.reason
            crashed = place.runner.run(libraries["null"]).cost
            assert crashed.status is CostStatus.CRASHED and "SIGSEGV" in crashed.reason
            assert place.runner.run(libraries["right"]).cost.is_valid

    def test_all_places_time_at_once(self, workers: Workers, libraries: dict[str, RunJob]) -> None:
        """Each in its own thread, holding its device."""
        results: list[tuple[str, RunResult]] = []
        together = threading.Barrier(len(workers.places), timeout=60.0)

        def task(place: Place) -> None:
            place.runner.warm_up()
            together.wait()
            with place.hold(lambda: None, lambda: False):
                results.append((place.name, place.runner.run(libraries["right"])))

        pool = RunnerPool(workers.places, lambda place, reason: None)
        try:
            for _ in workers.places:
                pool.submit(task)
            pool.wait()
        finally:
            pool.close()
            workers.close()  # Their processes may end with the threads.
        assert sorted(name for name, _ in results) == sorted(p.name for p in workers.places)
        assert all(result.cost.is_valid for _, result in results)

    def test_a_place_that_was_closed_times_again(
        self, workers: Workers, libraries: dict[str, RunJob]
    ) -> None:
        runner = workers.places[-1].runner
        for _ in range(2):
            assert runner.run(libraries["right"]).cost.is_valid
            runner.close()
            runner.close()
        runner.warm_up()
        assert runner.run(libraries["right"]).cost.is_valid

    def test_whole_models_are_compared_and_a_wrong_one_is_found(
        self, workers: Workers, whole_models: dict[str, Path]
    ) -> None:
        timer = workers.timer(ignore)
        results = timer.measure(_question(whole_models), list(whole_models.values()))
        fast, slow, wrong = (result.cost for result in results)
        assert fast.is_valid and slow.is_valid, results
        # One takes microseconds, the other sleeps two milliseconds.
        assert fast.median_sec < slow.median_sec and slow.median_sec >= 2e-3
        assert wrong.status is CostStatus.WRONG_RESULT and "off by" in wrong.reason

    def test_whole_models_wait_for_no_one_when_the_time_is_up(
        self, workers: Workers, whole_models: dict[str, Path]
    ) -> None:
        begin = time.monotonic()
        results = workers.timer(ignore).measure(
            _question(whole_models), list(whole_models.values()), Deadline.after(0.0)
        )
        assert [result.cost.status for result in results] == [CostStatus.UNKNOWN] * 3
        assert time.monotonic() - begin < self.settle_sec

    def test_whole_models_are_timed_when_no_candidate_is_any_longer(
        self, workers: Workers, alarm: Alarm, whole_models: dict[str, Path]
    ) -> None:
        """A budget keeps time for them: they have a deadline of their own."""
        right = {"right": whole_models["right"]}
        alarm.ring_after(0.0)
        try:
            timer = workers.timer(ignore)
            (result,) = timer.measure(_question(right), list(right.values()), Deadline.after(300.0))
        finally:
            alarm.reset()
        assert result.cost.is_valid, result

    def test_whole_models_and_candidates_take_turns(
        self, workers: Workers, libraries: dict[str, RunJob], whole_models: dict[str, Path]
    ) -> None:
        """An answer in hand is timed while candidates are, in another thread."""
        results: list[RunResult] = []
        lost: list[str] = []

        def hold(place: Place) -> AbstractContextManager[None]:
            return place.hold(lambda: None, lambda: False)

        def task(place: Place) -> None:
            job = libraries["right"]
            results.append(place.runner.run_sharing(job, lambda: hold(place)))

        right = {"right": whole_models["right"]}
        pool = RunnerPool(workers.places, lambda place, reason: lost.append(reason))
        count = 6 * len(workers.places)
        try:
            for _ in range(count):
                pool.submit(task)
            for _ in range(2):
                with hold(workers.places[0]):
                    timer = workers.timer(ignore)
                    (model,) = timer.measure(_question(right), list(right.values()))
                assert model.cost.is_valid, model
            pool.wait()
        finally:
            pool.drop()
            pool.wait()
            pool.close()
            workers.close()
        assert not lost and len(results) == count
        assert all(result.cost.is_valid for result in results)

    def test_building_ends_when_the_time_is_up_and_begins_anew(
        self, builder: Builder, alarm: Alarm, tmp_path: Path
    ) -> None:
        job = build_job(tmp_path / "first")
        assert builder.build([job])[0].status is CostStatus.VALID
        hang = [build_job(tmp_path / f"hang {n}", build="hang", shape=(n + 1, 3)) for n in range(3)]
        took = self._seconds_until_out_of_time(alarm, lambda: builder.build(hang))
        assert took < min(self.settle_sec, _PROMPT_SEC)
        job = build_job(tmp_path / "again", shape=(5, 6))
        assert builder.build([job])[0].status is CostStatus.VALID

    def test_timing_ends_when_the_time_is_up_and_begins_anew(
        self, workers: Workers, alarm: Alarm, libraries: dict[str, RunJob]
    ) -> None:
        """In the thread of the place, as in a search."""
        for place in workers.places:
            pool = RunnerPool([place], lambda place, reason: None)
            results: list[RunResult] = []

            def task(at: Place, results: list[RunResult] = results) -> None:
                results.append(at.runner.run(libraries["right"]))

            def hang(at: Place) -> None:
                at.runner.run(libraries["hang"])

            try:
                pool.submit(task)
                pool.wait()
                pool.submit(hang)
                took = self._seconds_until_out_of_time(alarm, pool.wait)
                assert took < min(self.settle_sec, _PROMPT_SEC)
                pool.submit(task)
                pool.wait()
            finally:
                pool.close()
                place.runner.close()
            assert [result.cost.is_valid for result in results] == [True, True]

    def _seconds_until_out_of_time(self, alarm: Alarm, work: Callable[[], object]) -> float:
        """How long it takes to end after the moment, which another thread brings about."""
        rung: list[float] = []

        def ring() -> None:
            rung.append(time.monotonic())
            alarm.ring_after(0.0)

        timer = threading.Timer(1.0, ring)
        timer.start()
        try:
            with pytest.raises(OutOfTimeError):
                work()
            return time.monotonic() - rung[0]
        finally:
            timer.join()
            alarm.reset()

    def test_nothing_is_left(
        self, engine: Engine, work: Work, libraries: dict[str, RunJob], tmp_path: Path
    ) -> None:
        """No process, no thread, and no file but those that others may use again."""
        scratch = tmp_path / "work"
        scratch.mkdir()
        before, threads, files = children(), set(threading.enumerate()), candidate_libraries()
        own = replace(work, context=replace(work.context, work_dir=scratch))
        with engine.open(own) as workers:
            jobs = [build_job(tmp_path / str(n), shape=(n + 1, 9)) for n in range(2)]
            with workers.builder(PLUGINS) as builder:
                assert all(built.library for built in builder.build(jobs))
            for place in workers.places:
                assert place.runner.run(RunJob.in_folder(jobs[0].folder)).cost.is_valid
        end = time.monotonic() + self.settle_sec
        while time.monotonic() < end and (children() - before or new_threads(threads)):
            time.sleep(0.05)
        assert children() <= before
        assert not new_threads(threads)
        assert candidate_libraries() <= files
        assert {path.name for path in scratch.iterdir()} <= {"locks", "references"}
        assert libraries["right"].library.is_file(), "what others have is theirs"


def _question(models: dict[str, Path]) -> EndToEndQuestion:
    targets: tuple[BackendTarget, ...] = (misbehaving_target(),)
    whole = [WholeModel(f"key of {word}", word, targets) for word in models]
    x = np.random.default_rng(1).standard_normal((4, 1000), np.float32)
    return EndToEndQuestion(whole, [Sample.of([x], [np.maximum(x, 0.0)])], rounds=4)
