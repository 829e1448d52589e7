"""Searches that are made again: the same answers, or others and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.relax import op

import collage
from benchmarks.networks.tiny import tiny_mobilenet
from collage.backends.contract.errors import UserError
from collage.cost import TableCostModel
from collage.cost.contest import Interval, Outcome, PairedComparison
from collage.cost.progress import ProgressEvent
from collage.pipeline.optimize import optimize
from collage.pipeline.studies import stability as module
from collage.pipeline.studies.stability import SearchAnswer, Stability, find_flips, stability
from collage.report import NodeInfo, PartitionInfo, Report
from collage.testing import graph

CHOSEN = PairedComparison(Outcome.CHOSEN)
TIE = PairedComparison(Outcome.TIE, Interval(1.002, 0.998, 1.006, n=24))
SLOWER = PairedComparison(Outcome.SLOWER, Interval(1.07, 1.05, 1.10, n=24))
UNDECIDED = PairedComparison(Outcome.UNDECIDED, Interval(1.01, 0.97, 1.06, n=24))


def report(*backends: str) -> Report:
    """Of a chain of operators, each a partition of its own."""
    nodes = [
        NodeInfo(i, f"v{i}", "relax.exp", "8", "float32", inputs=[]) for i in range(len(backends))
    ]
    parts = [
        PartitionInfo(i, backend, [i], [], "each", 1e-6, 0.0, f"{i}")
        for i, backend in enumerate(backends)
    ]
    return Report("net", "", {}, {}, [], nodes, parts)


def test_answers_alike_have_no_flips() -> None:
    assert find_flips([(0, report("tvm", "onednn"))] * 4, [CHOSEN]) == ()


@pytest.mark.parametrize(
    ("second", "third", "ties"),
    [(TIE, TIE, [True, True]), (TIE, SLOWER, [True, False]), (SLOWER, TIE, [False, False])],
)
def test_a_flip_is_a_tie_where_every_other_answer_is_as_good(
    second: PairedComparison, third: PairedComparison, ties: list[bool]
) -> None:
    answers = [report("tvm", "tvm"), report("onednn", "onednn"), report("tvm", "onednn")]
    found = [(0, answers[0]), (1, answers[1]), (2, answers[2]), (0, answers[0])]
    flips = find_flips(found, [CHOSEN, second, third])
    assert [dict(flip.backends) for flip in flips] == [
        {"tvm": 3, "onednn": 1},
        {"tvm": 2, "onednn": 2},
    ]
    assert [flip.is_tie for flip in flips] == ties
    assert not any(flip.outcome is Outcome.UNDECIDED for flip in flips)
    searches = tuple(SearchAnswer(n, "search", 1.0 + n, 1.0) for n, _ in found)
    whole = Stability(searches, (CHOSEN, second, third), flips)
    assert len(whole.flips_outside_ties) == ties.count(False)
    slower = SLOWER in (second, third)
    assert whole.largest_regret == pytest.approx(0.07 if slower else 0.002)
    assert whole.spread == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("second", "third", "outcomes"),
    [
        (UNDECIDED, TIE, [Outcome.UNDECIDED, Outcome.UNDECIDED]),
        (TIE, UNDECIDED, [Outcome.TIE, Outcome.UNDECIDED]),
        (UNDECIDED, SLOWER, [Outcome.UNDECIDED, Outcome.SLOWER]),
    ],
)
def test_what_no_contest_decided_is_neither_a_tie_nor_a_loss(
    second: PairedComparison, third: PairedComparison, outcomes: list[Outcome]
) -> None:
    answers = [report("tvm", "tvm"), report("onednn", "onednn"), report("tvm", "onednn")]
    found = [(0, answers[0]), (1, answers[1]), (2, answers[2])]
    flips = find_flips(found, [CHOSEN, second, third])
    assert [flip.outcome for flip in flips] == outcomes
    searches = tuple(SearchAnswer(n, "search", 1.0, 1.0) for n, _ in found)
    whole = Stability(searches, (CHOSEN, second, third), flips)
    assert len(whole.flips_outside_ties) == outcomes.count(Outcome.SLOWER)
    assert len(whole.flips_not_decided) == outcomes.count(Outcome.UNDECIDED)
    assert not any(flip.is_tie for flip in flips if flip.outcome is not Outcome.TIE)


def test_real_searches_are_compared_in_one_contest() -> None:
    events: list[ProgressEvent] = []
    found = stability(
        tiny_mobilenet(),
        ["llvm", "onednn"],
        searches=2,
        time_budget_sec=4.0,
        progress=events.append,
    )
    assert len(found.searches) == 2 and found.spread >= 0
    distinct = {search.answer for search in found.searches}
    assert distinct == set(range(len(found.comparisons)))
    assert sum(comparison.is_chosen for comparison in found.comparisons) == 1
    assert len(distinct) == 2 or not found.flips
    for flip in found.flips:
        assert sum(flip.backends.values()) == 2 and len(flip.backends) == 2
    assert [e.done for e in events if e.stage == "stability"] == [0, 1, 2]


def test_answers_are_told_apart_in_every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both searches agree about the first function, and not about the second."""
    mod = graph([(64, 64)], lambda emit, x: op.exp(x))
    mod["other"] = graph([(32, 64)], lambda emit, x: op.exp(x))["main"]
    costs = iter(["tvm", "onednn"])

    def changing(*args: Any, **options: Any) -> collage.Result:
        other = next(costs)
        table = {("exp 64x64", "tvm"): 1e-6, ("exp 64x64", "onednn"): 1e-3}
        table |= {("exp 32x64", n): 1e-6 if n == other else 1e-3 for n in ("tvm", "onednn")}
        return optimize(*args, cost_model=TableCostModel(table), **options)

    monkeypatch.setattr(module, "optimize", changing)
    found = stability(mod, ["llvm", "onednn"], searches=2)
    assert [search.answer for search in found.searches] == [0, 1]
    assert [search.median_sec for search in found.searches] == pytest.approx([2e-6, 2e-6])
    (flip,) = found.flips
    assert (flip.function, flip.op) == ("other", "exp")
    assert flip.backends == {"tvm": 1, "onednn": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"searches": 0}, "searches=0: at least one"),
        ({"log": "x.jsonl"}, "'log' cannot be given"),
        ({"replay": True}, "'replay' cannot be given"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        stability(tiny_mobilenet(), ["llvm"], **options)
