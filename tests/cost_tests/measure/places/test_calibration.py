"""Whether places compare, decided from times that were made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from collage.cost.database.record import RecordKey
from collage.cost.measure.places.calibration import (
    MOST_ROUNDS,
    Calibration,
    Finding,
)

USUAL = {"memory": 2e-3, "compute": 1e-3, "launch": 1.5e-6}
BOUND = 0.03
FEWEST_ROUNDS = 5
"""With which an interval of 90 % begins to say something."""


class Clock:
    """Shows what it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def key(name: str) -> RecordKey:
    facts = ("8x8:float32", '{"backend": "tvm"}', (), "g++ 12.2", "0.22", "Some CPU")
    return RecordKey("partition", name, *facts, driver="none", num_threads=4, config="{}")


Noise = Callable[[], float]


def check(
    calibration: Calibration,
    slow: Mapping[str, float | Mapping[str, float] | str],
    noise: Noise = lambda: 1.0,
) -> tuple[Finding, int]:
    """A whole check of places that take so many times as long as usual, or say why they cannot."""
    calibration.begin()
    for number in range(1, MOST_ROUNDS + 1):
        times = {
            name: {
                workload: how if isinstance(how, str) else sec * factor(how, workload) * noise()
                for workload, sec in USUAL.items()
            }
            for name, how in slow.items()
        }
        finding = calibration.add(times)
        if not finding.again:
            return finding, number
    raise AssertionError("a check must end")


def factor(how: float | Mapping[str, float], workload: str) -> float:
    return how if isinstance(how, float) else how.get(workload, 1.0)


def test_places_that_are_alike_all_stay() -> None:
    finding, rounds = check(Calibration(BOUND), {"a": 1.0, "b": 1.01, "c": 0.99})
    assert not finding.left_out and rounds == FEWEST_ROUNDS


@pytest.mark.parametrize("workload", ["memory", "compute"])
@pytest.mark.parametrize("ratio", [1.05, 0.9])
def test_one_that_differs_in_one_respect_is_left_out(workload: str, ratio: float) -> None:
    finding, _ = check(Calibration(BOUND), {"a": 1.0, "b": {workload: ratio}, "c": 1.0})
    assert list(finding.left_out) == ["b"]
    assert f"takes {ratio:.3f} times as long as a for {workload}" in finding.left_out["b"]


def test_a_microsecond_is_no_difference() -> None:
    """A launch's time differs by more than a few percent from one moment to the next."""
    assert not check(Calibration(BOUND), {"a": 1.0, "b": {"launch": 1.5}})[0].left_out
    assert check(Calibration(BOUND), {"a": 1.0, "b": {"launch": 4.0}})[0].left_out


def test_noise_costs_rounds_and_no_place() -> None:
    """Every draw: what is more than the bound away in a few rounds is no median."""
    for seed in range(200):
        rng = random.Random(seed)
        draws = lambda rng=rng: rng.choice([1.0, 1.005, 0.995, 1.0])  # noqa: E731
        finding, _ = check(Calibration(BOUND), {"a": 1.0, "b": 1.0, "c": 1.2}, draws)
        assert list(finding.left_out) == ["c"], seed


@pytest.mark.parametrize(("usual", "left_out"), [(1.0, []), (1.06, ["b"])])
def test_of_one_that_cannot_be_told_from_others_the_median_decides(
    usual: float, left_out: list[str]
) -> None:
    calibration = Calibration(BOUND)
    for number in range(MOST_ROUNDS):
        wild = (1.3, usual, 0.8)[number % 3]
        times = {"a": dict(USUAL), "b": {name: sec * wild for name, sec in USUAL.items()}}
        finding = calibration.add(times)
    assert list(finding.left_out) == left_out and not finding.again


def test_a_failure_or_two_are_forgiven_and_no_more() -> None:
    calibration = Calibration(BOUND)
    for number in range(FEWEST_ROUNDS + 2):
        times: dict[str, dict[str, float | str]] = {"a": dict(USUAL), "b": dict(USUAL)}
        if number < 2:
            times["b"]["memory"] = "killed"
        finding = calibration.add(times)
    assert not finding.left_out and not finding.again
    finding, _ = check(Calibration(BOUND), {"a": 1.0, "b": "no such kernel"})
    assert finding.left_out == {"b": "cannot be compared: no such kernel"}
    finding, _ = check(Calibration(BOUND), {"a": "no such kernel", "b": 1.0, "c": 1.0, "d": 1.2})
    assert list(finding.left_out) == ["a", "d"], "the first that can be is compared with"
    finding, rounds = check(Calibration(BOUND), {"a": "broken", "b": "broken"})
    assert list(finding.left_out) == ["b"] and rounds == 3
    assert finding.shared_doubt == "a cannot be compared: broken"


def test_drift_is_found_and_what_was_timed_meanwhile_is_doubtful() -> None:
    clock = Clock()
    calibration = Calibration(BOUND, clock)
    assert calibration.is_due("abc")
    check(calibration, {"a": 1.0, "b": 1.02, "c": 1.0})
    assert not calibration.is_due("abc")
    calibration.timed("b", key("before"))
    clock.now += 3600
    assert calibration.is_due("abc") and not calibration.is_due("b")
    good, rounds = check(calibration, {"a": 1.0, "b": 1.02, "c": 1.0})
    assert not good.left_out and rounds == 1, "one look is enough where nothing has changed"
    for place in "abc":
        calibration.timed(place, key(f"by {place}"))
    finding, _ = check(calibration, {"a": 1.0, "b": 1.02 * 1.2, "c": 1.0})
    assert list(finding.left_out) == ["b"]
    assert "has become 1.200 times as slow" in finding.left_out["b"]
    assert calibration.take_doubtful() == [key("by b")]
    assert calibration.take_doubtful() == []


def test_the_first_place_may_drift_too() -> None:
    calibration = Calibration(BOUND)
    check(calibration, {"a": 1.0, "b": 1.0})
    finding, _ = check(calibration, {"a": 1.3, "b": 1.0})
    assert list(finding.left_out) == ["a"]


def test_where_all_become_slower_alike_nobody_is_at_fault() -> None:
    calibration = Calibration(BOUND)
    check(calibration, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert not check(calibration, {"a": 1.3, "b": 1.3, "c": 1.31})[0].left_out


def test_a_disturbance_of_one_round_is_no_drift() -> None:
    calibration = Calibration(BOUND)
    check(calibration, {"a": 1.0, "b": 1.0})
    turns = iter([1.4, *[1.0] * 100])
    calibration.begin()
    rounds = 0
    while True:
        slow = next(turns)
        times = {"a": dict(USUAL), "b": {name: sec * slow for name, sec in USUAL.items()}}
        finding = calibration.add(times)
        rounds += 1
        if not finding.again:
            break
    assert not finding.left_out and FEWEST_ROUNDS <= rounds < MOST_ROUNDS


def test_who_comes_later_is_compared_with_the_first() -> None:
    calibration = Calibration(BOUND)
    check(calibration, {"a": 1.0, "b": 1.0})
    assert not calibration.is_due("ab") and calibration.is_due("abc")
    finding, _ = check(calibration, {"a": 1.0, "b": 1.0, "c": 1.1})
    assert list(finding.left_out) == ["c"]


def test_checks_take_a_bounded_share_of_the_time() -> None:
    clock = Clock()
    calibration = Calibration(BOUND, clock)
    spent, begin = 0.0, clock.now
    check(calibration, {"a": 1.0, "b": 1.0})
    while clock.now < begin + 4000:
        clock.now += 1.0
        if calibration.is_due("ab"):
            calibration.begin()
            clock.now += 2.5
            spent += 2.5
            calibration.add({"a": dict(USUAL), "b": dict(USUAL)})
    assert 0.01 < spent / 4000 < 0.021
