"""Searches that are made again: the same answers, or others and what they cost."""

from __future__ import annotations

import pytest

from benchmarks.tiny import tiny_mobilenet
from collage.cost.contest import Interval, Outcome, PairedComparison
from collage.cost.progress import ProgressEvent
from collage.pipeline.stability import SearchAnswer, Stability, find_flips, stability
from collage.report import NodeInfo, PartitionInfo, Report

CHOSEN = PairedComparison(Outcome.CHOSEN)
TIE = PairedComparison(Outcome.TIE, Interval(1.002, 0.998, 1.006, n=24))
SLOWER = PairedComparison(Outcome.SLOWER, Interval(1.07, 1.05, 1.10, n=24))


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
    searches = tuple(SearchAnswer(n, "search", 1.0 + n, 1.0) for n, _ in found)
    whole = Stability(searches, (CHOSEN, second, third), flips)
    assert len(whole.flips_outside_ties) == ties.count(False)
    slower = SLOWER in (second, third)
    assert whole.largest_regret == pytest.approx(0.07 if slower else 0.002)
    assert whole.spread == pytest.approx(2.0)


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
