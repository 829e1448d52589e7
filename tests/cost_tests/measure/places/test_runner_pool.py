"""Places pull what is to be timed; one that is lost hands its task on."""

from __future__ import annotations

import _thread
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from collage.backends.contract.errors import MeasurementError, OutOfTimeError
from collage.cost.base import Cost
from collage.cost.measure.engine import Place
from collage.cost.measure.places.runner_pool import RunnerPool
from collage.cost.measure.runner import PlaceLostError, RunJob, Runner, RunResult

PATIENCE_SEC = 60.0
"""Far more than any of this takes; a test that is wrong fails then."""


class Idle(Runner):
    def run(self, job: RunJob) -> RunResult:
        return RunResult(Cost.of_samples([1.0]))

    def close(self) -> None:
        pass


@contextmanager
def pool_of(names: str) -> Iterator[tuple[RunnerPool, list[tuple[str, str]]]]:
    """A pool with a place for each letter, and what it tells of lost ones."""
    lost: list[tuple[str, str]] = []
    places = [Place(name, Idle()) for name in names]
    pool = RunnerPool(places, lambda place, reason: lost.append((place.name, reason)))
    try:
        yield pool, lost
    finally:
        pool.close()


def test_all_places_work_at_once_and_a_free_one_takes_the_next_task() -> None:
    together = threading.Barrier(3, timeout=PATIENCE_SEC)
    held = threading.Event()
    done: list[tuple[str, int]] = []

    def meet(place: Place) -> None:
        together.wait()  # Breaks unless all three are at it.

    def hold(place: Place) -> None:
        held.wait(PATIENCE_SEC)
        done.append((place.name, -1))

    with pool_of("abc") as (pool, _):
        for _ in range(3):
            pool.submit(meet)
        pool.wait()
        pool.submit(hold)
        for number in range(20):

            def work(place: Place, number: int = number) -> None:
                done.append((place.name, number))
                if len(done) == 20:
                    held.set()

            pool.submit(work)
        pool.wait()
    busy = done[-1][0]
    assert sorted(number for _, number in done) == list(range(-1, 20))
    assert all(name != busy for name, _ in done[:-1]), "nothing was dealt out to who was busy"


def test_a_place_always_works_in_the_same_thread() -> None:
    seen: dict[str, set[int]] = {}
    with pool_of("abc") as (pool, _):
        for _ in range(60):
            pool.submit(lambda at: seen.setdefault(at.name, set()).add(threading.get_ident()))
        pool.wait()
    threads = [thread for found in seen.values() for thread in found]
    assert len(threads) == len(seen) == len(set(threads))


def test_the_task_of_a_lost_place_is_done_elsewhere() -> None:
    done: list[str] = []

    def work(place: Place) -> None:
        if place.name == "a":
            raise PlaceLostError("a is gone")
        done.append(place.name)

    with pool_of("ab") as (pool, lost):
        for _ in range(5):
            pool.submit(work)
        pool.wait()
        assert pool.size == 1
        pool.submit(work)
        pool.wait()
    assert done == ["b"] * 6 and lost == [("a", "a is gone")]


def test_a_task_that_loses_two_places_is_set_aside_and_the_others_are_done() -> None:
    done: list[int] = []
    reasons: list[str] = []

    def poison(place: Place) -> None:
        raise PlaceLostError(f"{place.name} fell over")

    with pool_of("abcd") as (pool, lost):
        pool.submit(poison, reasons.append)
        for number in range(10):
            pool.submit(lambda place, number=number: done.append(number))  # type: ignore[misc]
        pool.wait()
        assert pool.size == 2
    assert sorted(done) == list(range(10))
    (reason,) = reasons
    assert reason.startswith("2 workers were lost with it") and reason.endswith("fell over")
    assert len(lost) == 2


def test_a_task_that_nobody_else_can_take_over_ends_all() -> None:
    def poison(place: Place) -> None:
        raise PlaceLostError(f"{place.name} fell over")

    with pool_of("abc") as (pool, _):
        pool.submit(poison)
        with pytest.raises(PlaceLostError, match="fell over"):
            pool.wait()
        pool.wait()  # It is no longer there.
        assert pool.size == 1


def test_without_any_place_left_there_is_an_error_with_what_is_left() -> None:
    def lose(place: Place) -> None:
        raise PlaceLostError("gone")

    with pool_of("a") as (pool, lost):
        for _ in range(3):
            pool.submit(lose, lambda reason: None)
        with pytest.raises(MeasurementError, match="the other 3 candidates") as caught:
            pool.wait()
        assert caught.value.value == 3 and lost == [("a", "gone")] and pool.size == 0
        pool.submit(lose)
        with pytest.raises(MeasurementError, match="no worker is left"):
            pool.wait()


def test_the_first_error_is_raised_once_and_drops_what_has_not_begun() -> None:
    begun: list[int] = []
    failed = threading.Event()

    def fail(place: Place) -> None:
        failed.set()
        raise OutOfTimeError("the time is spent")

    def slow(place: Place) -> None:
        failed.wait(PATIENCE_SEC)
        time.sleep(0.1)
        raise MeasurementError("a later one")

    with pool_of("ab") as (pool, _):
        pool.submit(slow)
        pool.submit(fail)
        for number in range(5):
            pool.submit(lambda place, number=number: begun.append(number))  # type: ignore[misc]
        with pytest.raises(OutOfTimeError):
            pool.wait()
        assert begun == []
        pool.wait()
        pool.submit(lambda place: begun.append(7))
        pool.wait()
    assert begun == [7]


@pytest.mark.parametrize("fault", ["told", "set aside"])
def test_whoever_is_told_may_fail_and_nobody_waits_for_ever(fault: str) -> None:
    def poison(place: Place) -> None:
        raise PlaceLostError("gone")

    def refuse(*_: object) -> None:
        raise RuntimeError("not now")

    places = [Place(name, Idle()) for name in "abc"]
    pool = RunnerPool(places, refuse if fault == "told" else lambda place, reason: None)
    try:
        pool.submit(poison, refuse)
        with pytest.raises(RuntimeError, match="not now"):
            pool.wait()
    finally:
        pool.close()


def test_an_interrupt_is_noticed_while_tasks_are_waited_for() -> None:
    """And what was under way can be waited for afterwards."""
    release = threading.Event()
    ended: list[str] = []

    def work(place: Place) -> None:
        release.wait(PATIENCE_SEC)
        ended.append(place.name)

    with pool_of("a") as (pool, _):
        pool.submit(work)
        pool.submit(work)
        timer = threading.Timer(0.2, _thread.interrupt_main)
        try:
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                pool.wait()
        finally:
            timer.join()
            pool.drop()
            release.set()
        pool.wait()
    assert ended == ["a"]


def test_closing_ends_the_threads() -> None:
    before = set(threading.enumerate())
    with pool_of("abc") as (pool, _):
        for _ in range(6):
            pool.submit(lambda place: time.sleep(0.01))
        pool.wait()
        assert len(set(threading.enumerate()) - before) == 3
    assert set(threading.enumerate()) <= before


def test_random_losses_lose_no_task() -> None:
    """Every task is done exactly once or set aside, as long as one place is left."""
    rng = random.Random()
    for _ in range(20):
        count = rng.randrange(2, 9)
        doomed = {str(n) for n in range(1, count) if rng.random() < 0.5}
        done: list[int] = []
        aside: list[int] = []

        def work(place: Place, number: int, doomed: set[str], done: list[int]) -> None:
            if place.name in doomed:
                raise PlaceLostError("gone")
            time.sleep(0.001)
            done.append(number)

        places = [Place(str(n), Idle()) for n in range(count)]
        lost: list[str] = []
        pool = RunnerPool(places, lambda place, reason, lost=lost: lost.append(place.name))  # type: ignore[misc]
        try:
            for number in range(40):
                pool.submit(
                    lambda place, n=number, d=doomed, f=done: work(place, n, d, f),  # type: ignore[misc]
                    lambda reason, n=number, a=aside: a.append(n),  # type: ignore[misc]
                )
            pool.wait()
        finally:
            pool.close()
        assert sorted([*done, *aside]) == list(range(40))
        assert len(set(lost)) == len(lost) and set(lost) <= doomed and _pairs(aside, lost)


def _pairs(aside: Sequence[int], lost: Sequence[str]) -> bool:
    return 2 * len(aside) <= len(lost)
