"""Who wins among evaluations: by rounds of one contest, by medians where there are none."""

from __future__ import annotations

import pytest
import tvm

from collage.cost.base import Cost, CostStatus
from collage.cost.contest import Rounds
from collage.end_to_end import Contender, Evaluation, NothingRunsError, best, decide
from collage.search.partitioning import Partitioning


def evaluation(name: str, *seconds: float, contest: str = "c", key: str = "") -> Evaluation:
    contender = Contender(name, Partitioning(()))
    rounds = Rounds(contest, seconds) if contest else None
    cost = Cost.of_samples(seconds)
    return Evaluation(contender, tvm.IRModule(), key or name, cost, 0.0, rounds)


def test_paired_rounds_decide_and_medians_do_not() -> None:
    """The median of the slower one is smaller, for it left before the machine became slow."""
    early = evaluation("early", *[1.5] * 5, *[])
    late = evaluation("late", *[1.0] * 5, *[9.0] * 20)
    padded = Rounds("c", (*[1.5] * 5, *[None] * 20))
    early = Evaluation(early.contender, early.module, "early", early.cost, 0.0, padded)
    assert early.cost.median_sec < late.cost.median_sec
    assert best([early, late]).contender.name == "late"


@pytest.mark.parametrize("names", [("search", "single:a"), ("single:a", "search")])
def test_a_tie_falls_to_a_single_backend(names: tuple[str, str]) -> None:
    tied = [evaluation(name, *[1.0 if name == "search" else 1.004] * 8) for name in names]
    assert best(tied).contender.name == "single:a"
    proven = [evaluation(name, *[1.0 if name == "search" else 1.02] * 8) for name in names]
    assert best(proven).contender.name == "search"


def test_contenders_that_came_out_the_same_stand_alike_and_the_first_wins() -> None:
    same = [evaluation(name, *[1.0] * 8, key="same") for name in ("search", "single:a")]
    verdict = decide([*same, evaluation("greedy", *[1.2] * 8)])
    assert verdict.winner is same[0]
    outcomes = [one.outcome.value for one in verdict.comparisons if one is not None]
    assert outcomes == ["chosen", "chosen", "slower"]


def test_times_of_other_contests_and_of_old_logs_do_not_mix_in() -> None:
    together = [evaluation("a", *[1.0] * 8), evaluation("b", *[1.1] * 8)]
    alone = evaluation("alone", 0.1, contest="other")
    verdict = decide([alone, *together])
    assert verdict.winner.contender.name == "a" and verdict.comparisons[0] is None
    old = [evaluation("a", 2.0, 2.0, contest=""), evaluation("b", 1.0, 1.0, contest="")]
    verdict = decide(old)
    assert verdict.winner.contender.name == "b" and verdict.comparisons == (None, None)


def test_a_trial_of_the_same_models_does_not_mix_in() -> None:
    """They met for three rounds, then in earnest: both contests have the name of the models."""
    trial = evaluation("trial", *[0.9] * 3)
    verdict = decide([trial, evaluation("a", *[1.0] * 8), evaluation("b", *[1.2] * 8)])
    assert verdict.winner.contender.name == "a" and verdict.comparisons[0] is None


def test_nobody_valid_is_an_error_with_every_reason() -> None:
    failed = Cost(CostStatus.CRASHED, reason="died")
    one = Evaluation(Contender("greedy", Partitioning(())), tvm.IRModule(), "k", failed)
    with pytest.raises(NothingRunsError, match="greedy: died"):
        decide([one])
