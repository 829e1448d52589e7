"""Who is at work, who did what, and for how long: of several threads at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from collage.cost.measure.replay import MeasureStats
from collage.cost.measure.runner import PlaceLostError
from collage.cost.measure.watch import WHOLE_MODELS, PlaceUse, Watch
from collage.cost.progress import Workforce


@pytest.fixture
def spent() -> list[float]:
    return []


@pytest.fixture
def watch(spent: list[float]) -> Watch:
    return Watch({"a": PlaceUse(), "b": PlaceUse()}, spent.append)


def test_what_is_built_waits_until_a_place_takes_it(watch: Watch) -> None:
    watch.begin_building(3)
    watch.built(is_valid=True)
    watch.built(is_valid=False)
    assert watch.workforce() == Workforce(workers=2, busy=0, queued=1, building=1)
    with watch.timing("a", "tvm", queued=True):
        assert watch.workforce() == Workforce(workers=2, busy=1, queued=0, building=1)
    assert watch.uses["a"].tasks == {"tvm": 1} and not watch.uses["b"].tasks
    watch.drop()
    assert watch.workforce() == Workforce(workers=2, busy=0, queued=0, building=0)


def test_a_place_that_is_lost_has_done_nothing_and_its_task_waits_again(watch: Watch) -> None:
    watch.begin_building(1)
    watch.built(is_valid=True)
    with pytest.raises(PlaceLostError), watch.timing("a", "tvm", queued=True):
        raise PlaceLostError("it was switched off")
    watch.leave_out("a", "it was switched off")
    assert watch.workforce() == Workforce(workers=1, busy=0, queued=1, building=0)
    assert watch.uses["a"] == PlaceUse(Counter(), watch.uses["a"].busy_sec, "it was switched off")


def test_a_place_that_joins_or_comes_back_is_one_like_the_others(watch: Watch) -> None:
    watch.leave_out("a", "it was switched off")
    for place in ("a", "late"):
        with watch.timing(place, "tvm"):
            assert watch.workforce().busy == 1
    assert watch.workforce().workers == 3
    assert [watch.uses[place].tasks["tvm"] for place in ("a", "late")] == [1, 1]
    assert not watch.uses["a"].left_out


def test_threads_at_one_place_are_told_apart(watch: Watch) -> None:
    """A whole model and a candidate: one of them waits for the device, and is not busy."""
    both = threading.Barrier(2)

    def candidate() -> None:
        with watch.timing("a", "tvm"):
            both.wait()
            watch.waited(1e6)
            both.wait()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(candidate)
        with watch.timing("a", WHOLE_MODELS):
            both.wait()
            assert watch.workforce().busy == 1
            both.wait()
        done.result()
    use = watch.uses["a"]
    assert use.tasks == {"tvm": 1, WHOLE_MODELS: 1}
    assert use.busy_sec < 0, "the waiting was invented, and is taken off once"
    assert watch.workforce().busy == 0


def test_nothing_is_lost_between_many_threads() -> None:
    watch = Watch({str(n): PlaceUse() for n in range(8)}, lambda seconds: None)
    watch.begin_building(8 * 200)

    def work(name: str) -> None:
        for _ in range(200):
            watch.built(is_valid=True)
            with watch.timing(name, "tvm", queued=True):
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, map(str, range(8))))
    assert watch.workforce() == Workforce(workers=8, busy=0, queued=0, building=0)
    assert all(use.tasks == {"tvm": 200} for use in watch.uses.values())


def test_measuring_at_once_takes_its_time_once(watch: Watch, spent: list[float]) -> None:
    begin = time.perf_counter()
    with watch.measuring():
        with watch.measuring():
            pass
        assert not spent
    with watch.measuring():
        pass
    assert len(spent) == 2 and 0 <= sum(spent) <= time.perf_counter() - begin


def test_statistics_since_a_copy_are_what_was_added() -> None:
    stats = MeasureStats(measured=3, seconds_measuring=2.0, builders=4)
    stats.places["a"] = PlaceUse(Counter(tvm=2), 1.5)
    before = stats.copy()
    stats.measured += 1
    stats.seconds_measuring += 1.0
    stats.places["a"].tasks["tvm"] += 1
    stats.places["a"].busy_sec += 0.5
    stats.places["b"] = PlaceUse(Counter(cudnn=1), 0.25, "it drifts")
    assert stats.since(before) == MeasureStats(
        measured=1,
        seconds_measuring=1.0,
        builders=4,
        places={
            "a": PlaceUse(Counter(tvm=1), 0.5),
            "b": PlaceUse(Counter(cudnn=1), 0.25, "it drifts"),
        },
    )
    assert before.places["a"].tasks == {"tvm": 2}
