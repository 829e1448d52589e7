"""Whole models of which memory has not room for all: some play at a time, all are compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from collage.backends.devices import CPU, CUDA
from collage.cost.base import CostStatus
from collage.cost.config import MeasureConfig
from collage.cost.contest import Outcome, paired_comparisons
from collage.cost.deadline import Deadline
from collage.cost.device import available_cores
from collage.cost.measure.whole_models import end_to_end
from collage.cost.measure.whole_models.end_to_end import EndToEndTimer
from collage.cost.measure.whole_models.model_timer import EndToEndQuestion, WholeModel
from collage.cost.measure.whole_models.room import needs_of, room_for
from collage.cost.progress import ProgressEvent
from collage.cost.reference import Sample
from collage.testing.fixtures.leftovers import workers
from collage.testing.fixtures.misbehaving import misbehaving_target
from tests.cost_tests.conftest import Library

WORDS = ("sleep", "abort", "right", "wrong", "sleep")


@pytest.fixture(autouse=True)
def for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for two of them."""
    monkeypatch.setattr(
        end_to_end, "room_for", lambda models, kind: 2.5 * max(needs_of(models), default=0)
    )


def asked(
    library: Library, words: tuple[str, ...] = WORDS, *, provisional: bool = False
) -> tuple[EndToEndQuestion, list[Path]]:
    jobs = [library(word) for word in words]
    models = [
        WholeModel(f"{number}", f"{number}", (misbehaving_target(),)) for number in range(len(jobs))
    ]
    sample = Sample.load(jobs[words.index("right")].sample)
    question = EndToEndQuestion(models, [sample], rounds=9, provisional=provisional)
    return question, [job.library for job in jobs]


def test_all_are_compared_and_no_more_than_fit_are_there(
    config: MeasureConfig, library: Library, tmp_path: Path
) -> None:
    seen: list[int] = []

    def watch(event: ProgressEvent) -> None:
        seen.append(len(workers()))

    question, libraries = asked(library)
    results = EndToEndTimer(config, tmp_path, watch).measure(question, libraries)
    assert [result.cost.status for result in results] == [
        CostStatus.VALID,
        CostStatus.CRASHED,
        CostStatus.VALID,
        CostStatus.WRONG_RESULT,
        CostStatus.VALID,
    ]
    assert max(seen) == 2 and not workers()
    right = [0, 2, 4]
    rounds = [results[place].rounds for place in right]
    assert len({(one.contest, len(one.seconds)) for one in rounds if one}) == 1
    found = paired_comparisons([one.counted for one in rounds if one], range(len(right)))
    assert Outcome.ALONE not in {one.outcome for one in found}
    if available_cores() > 1:  # On one, sleeping takes no processor time.
        assert found[1].is_chosen, "the one that does not sleep"
        assert {found[0].outcome, found[2].outcome} <= {Outcome.SLOWER, Outcome.LEFT}


def test_a_trial_needs_no_leader_that_stays(
    config: MeasureConfig, library: Library, tmp_path: Path
) -> None:
    question, libraries = asked(library, provisional=True)
    results = EndToEndTimer(config, tmp_path).measure(replace(question, rounds=2), libraries)
    assert [result.cost.is_valid for result in results] == [True, False, True, False, True]
    played = [one.rounds and [sec is not None for sec in one.rounds.seconds] for one in results]
    assert played == [
        [True] * 2 + [False] * 4,
        None,
        [False] * 2 + [True] * 2 + [False] * 2,
        None,
        [False] * 4 + [True] * 2,
    ]


@pytest.mark.parametrize("sec", [0.0, 1.5])
def test_when_time_is_up_the_rest_is_unknown_and_nothing_is_left(
    config: MeasureConfig, library: Library, tmp_path: Path, sec: float
) -> None:
    question, libraries = asked(library, ("right", *("sleep",) * 6))
    timer = EndToEndTimer(config, tmp_path)
    results = timer.measure(question, libraries, Deadline.after(sec))
    known = [result.cost.status for result in results]
    assert set(known) <= {CostStatus.VALID, CostStatus.UNKNOWN}
    assert sec or set(known) == {CostStatus.UNKNOWN}
    # One that is forked while it is given up ends by itself.
    assert not psutil.wait_procs(workers(), timeout=30.0)[1]


def test_heats_share_the_time(config: MeasureConfig, library: Library, tmp_path: Path) -> None:
    """Patience alone would leave none of it to the last."""
    question, libraries = asked(library, ("right", "sleep", "sleep", "sleep"))
    question = replace(question, rounds=10_000)
    results = EndToEndTimer(config, tmp_path).measure(question, libraries, Deadline.after(60.0))
    assert all(result.cost.is_valid for result in results)


def test_room_is_what_is_left_of_three_times_the_weights_and_a_gibibyte() -> None:
    def models(weights: int) -> list[WholeModel]:
        return [WholeModel("a", "a", (), weights_bytes=weights), WholeModel("b", "b", ())]

    small, large = room_for(models(100 << 20), CPU), room_for(models(400 << 20), CPU)
    # One of the three times is what is read when a model is loaded; the process may have grown.
    assert large - small == pytest.approx(2 * (300 << 20), abs=50 << 20)
    assert small < 3 * (100 << 20) + (1 << 30)
    assert room_for(models(0), CPU) == room_for([], CPU) == math.inf
    assert room_for(models(400 << 20), CUDA) == math.inf
