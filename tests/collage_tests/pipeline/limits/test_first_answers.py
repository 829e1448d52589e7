"""Which contenders are tried out first, and that the fastest of them all is the answer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.contract import BackendTarget, BuildContext
from collage.backends.contract.registry import backend_names, register_backend
from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.cost.base import Cost, CostStatus
from collage.cost.contest import Rounds
from collage.cost.deadline import NEVER, Deadline
from collage.cost.workload.workload import Workload
from collage.end_to_end import (
    Contender,
    EndToEndComparison,
    Evaluation,
    NothingRunsError,
    Seen,
    baselines,
)
from collage.end_to_end.evaluation import Lowered, everybody
from collage.pipeline.evaluated import by_promise, evaluate_in_time
from collage.pipeline.first_answers import find_beside, first_answers
from collage.pipeline.limits import AnswerInHand, Budget
from collage.pipeline.prefetch import Prefetch
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph
from tests.cost_tests.toy_tunable_backend import ToyTunableBackend

TARGETS = resolve_targets(["llvm", "onednn", "openblas", "openvino"])
WEIGHTS = relax.const(np.ones((64, 64), "float32"))
MODEL = graph([(8, 64)], lambda emit, x: op.exp(emit(op.matmul(x, WEIGHTS))))
GRAPH = DataflowGraph.from_function(MODEL["main"])
SEEDS = baselines(GRAPH, TARGETS)
NAMES = ("single:tvm", "single:onednn", "single:openblas", "single:openvino")


class TimesOfATable(EndToEndComparison):
    """Times are given, and noted in contests as those that are measured are."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__(MODEL, GRAPH, TARGETS, BuildContext(Path("cache"), Path("work")))
        self._contests = map(str, itertools.count())
        keys = {one.partitioning.key(): one.name for one in reversed(SEEDS)}
        self._seconds = {key: seconds[name] for key, name in keys.items()}

    def try_out(
        self,
        contenders: Sequence[Contender],
        deadline: Deadline = NEVER,
        enough: Callable[[], float] = everybody,
    ) -> tuple[list[Evaluation], Seen]:
        return self.compare(contenders), Seen(0.1, 0.1, len(contenders))

    def _evaluate(self, lowered: Sequence[Lowered]) -> list[Evaluation]:
        contest, found = next(self._contests), []
        for one in lowered:
            seconds = [self._seconds[one.contender.partitioning.key()]] * 3
            cost, rounds = Cost.of_samples(seconds), Rounds(contest, tuple(seconds))
            found.append(Evaluation.of(one, cost, rounds=rounds))
        return found


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(1e-6, 1.0), min_size=4, max_size=4),
    st.integers(1, 4),
    st.sampled_from([0.0, 4.0, 1e3]),
    st.permutations(NAMES),
)
def test_the_fastest_of_all_that_were_timed_is_the_answer(
    times: list[float], at_once: int, budget_sec: float, order: list[str]
) -> None:
    """Whether they played with it or before it, and whatever was guessed of them."""
    seconds = dict(zip(NAMES, times, strict=True))
    seconds["greedy"] = seconds["single:onednn"]
    comparison = TimesOfATable(seconds)
    costs = WorkloadCosts(MODEL, GRAPH, TableCostModel({}))
    budget = Budget(budget_sec)
    by_name = {one.name: one for one in SEEDS}
    with AnswerInHand(comparison, budget) as hand:
        hand.find([by_name[name] for name in order], at_once)
        evaluated = evaluate_in_time(comparison, SEEDS, costs, budget, hand)
    timed = [one for one in evaluated.evaluations if one.cost.is_valid]
    assert len({one.key for one in timed}) >= at_once
    fastest = min(one.cost.median_sec for one in timed)
    # Among equals the simplest is taken.
    assert evaluated.winner.cost.median_sec <= 1.02 * fastest + 1e-6


@pytest.mark.parametrize("fastest", NAMES)
@pytest.mark.parametrize("at_once", [1, 2])
def test_others_may_be_tried_out_beside_the_answer(fastest: str, at_once: int) -> None:
    seconds = {name: 1e-3 if name == fastest else 2e-3 for name in [*NAMES, "greedy"]}
    seconds["greedy"] = seconds["single:onednn"]
    comparison = TimesOfATable(seconds)
    by_name = {one.name: one for one in SEEDS}
    with AnswerInHand(comparison, Budget(1e3)) as hand:
        hand.find([by_name[name] for name in NAMES], at_once)
        hand.widen([by_name[name] for name in reversed(NAMES)])
        answer = hand.answer()
        assert answer is not None and answer.contender.name == fastest
        # All in one contest: times of others do not compare.
        assert {one.contender.name for one in hand.tried} == set(NAMES)
        assert len({one.rounds.contest for one in hand.tried if one.rounds is not None}) == 1


@pytest.mark.parametrize(("fastest", "answer"), [("tvm", "tvm"), ("openblas", "openvino")])
def test_beside_the_measuring_tvm_alone_is_second_whatever_was_guessed(
    fastest: str, answer: str
) -> None:
    seconds = dict.fromkeys([*NAMES, "greedy"], 2e-3) | {"single:tvm": 4e-2}
    seconds[f"single:{fastest}"] = 1e-3
    comparison = TimesOfATable(seconds)
    by_name = {one.name: one for one in SEEDS}
    ranked = [by_name[name] for name in reversed(NAMES)]
    with AnswerInHand(comparison, Budget(1e3)) as hand:
        find_beside(hand, ranked, Deadline.after(1e3))
        found = hand.answer()
        assert found is not None and found.contender.name == f"single:{answer}"
        assert {one.contender.name for one in hand.tried} == {"single:openvino", "single:tvm"}


def test_a_second_answer_is_not_waited_for_once_the_measuring_ends() -> None:
    comparison = TimesOfATable(dict.fromkeys([*NAMES, "greedy"], 2e-3) | {"single:tvm": 1e-3})
    by_name = {one.name: one for one in SEEDS}
    ranked = [by_name["single:openvino"], by_name["single:tvm"]]
    with AnswerInHand(comparison, Budget(1e3)) as hand:
        find_beside(hand, ranked, Deadline.after(0.0))
        found = hand.answer()
        assert found is not None and found.contender.name == "single:openvino"
        assert [one.contender.name for one in hand.tried] == ["single:openvino"]


def test_nothing_is_added_to_an_answer_that_nobody_asked_for() -> None:
    comparison = TimesOfATable(dict.fromkeys([*NAMES, "greedy"], 1e-3))
    with AnswerInHand(comparison, Budget(1e3)) as hand:
        hand.widen(SEEDS)
        assert hand.answer() is None and hand.tried == ()


class OnlyOneRuns(TimesOfATable):
    """And of several contenders only some are tried out together: there is no time for more."""

    def __init__(self, runs: str, together: int) -> None:
        super().__init__(dict.fromkeys([*NAMES, "greedy"], 1.0))
        self.asked: list[list[str]] = []
        self._runs, self._together = runs, together

    def try_out(
        self,
        contenders: Sequence[Contender],
        deadline: Deadline = NEVER,
        enough: Callable[[], float] = everybody,
    ) -> tuple[list[Evaluation], Seen]:
        now, late = contenders[: self._together], contenders[self._together :]
        self.asked.append([one.name for one in now])
        done = [
            one
            if one.contender.name == self._runs
            else replace(one, cost=Cost(CostStatus.BUILD_FAILED, reason="no such instruction"))
            for one in self.compare(now)
        ]
        return [*done, *map(Evaluation.without_time, late)], Seen(0.1, 0.1, len(now))


@pytest.mark.parametrize("together", [1, 2, 3, 4])
@pytest.mark.parametrize("runs", NAMES)
def test_who_was_left_out_is_tried_when_the_others_do_not_run(runs: str, together: int) -> None:
    comparison = OnlyOneRuns(runs, together)
    by_name = {one.name: one for one in SEEDS}
    with AnswerInHand(comparison, Budget(0.0)) as hand:
        hand.find([by_name[name] for name in NAMES], at_once=4)
        answer = hand.answer()
    assert answer is not None and answer.contender.name == runs
    first, *later = comparison.asked
    assert first == list(NAMES[:together])
    tried = [name for names in comparison.asked for name in names]
    assert len(set(tried)) == len(tried), "none that failed is tried again"
    assert all(len(names) == 1 for names in later)


def test_what_failed_is_not_tried_again_beside_the_answer() -> None:
    comparison = OnlyOneRuns("single:openblas", together=4)
    by_name = {one.name: one for one in SEEDS}
    with AnswerInHand(comparison, Budget(1e3)) as hand:
        hand.find([by_name[name] for name in NAMES[:3]], at_once=3)
        hand.widen([by_name[name] for name in NAMES])
        answer = hand.answer()
    assert answer is not None and answer.contender.name == "single:openblas"
    assert comparison.asked[1:] == [["single:openblas", "single:openvino"]]


def test_where_nothing_runs_the_reasons_are_the_compilers() -> None:
    """Of a budget without any time, too: what was found out is not that there was none."""
    comparison = OnlyOneRuns("nobody", together=4)
    costs, budget = WorkloadCosts(MODEL, GRAPH, TableCostModel({})), Budget(0.0)
    with AnswerInHand(comparison, budget) as hand:
        hand.find(SEEDS)
        with pytest.raises(NothingRunsError, match="no such instruction") as failure:
            evaluate_in_time(comparison, SEEDS, costs, budget, hand)
    assert "budget" not in str(failure.value)


@given(st.floats(1.0, 1e4), st.integers(1, 8))
def test_the_less_time_is_left_the_fewer_first_answers_are_waited_for(
    total: float, parallel: int
) -> None:
    now = 50.0
    budget = Budget(total, parallel=parallel, clock=lambda: now)
    wanted = []
    for share in np.linspace(0.0, 1.0, 30):
        now = 50.0 + float(share) * total
        wanted.append(budget.enough())
    assert Budget().enough() == float("inf")
    assert wanted == sorted(wanted, reverse=True) and set(wanted) == {float("inf"), 2, 1}
    budget.interrupt()
    assert budget.enough() == 1


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_models_that_were_compiled_together_are_no_measure_of_one(parallel: int) -> None:
    together, alone = (Budget(1e3, parallel=parallel, clock=lambda: 0.0) for _ in range(2))
    together.saw(Seen(4.0 * -(-5 // parallel), 1.0, 5))
    alone.saw(Seen(4.0, 1.0))
    assert together.measuring.end == pytest.approx(alone.measuring.end)


def test_who_is_late_does_not_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one core, guessing took seconds after 20 of which nothing was left."""
    mod = graph(
        [(8, 64)], lambda emit, x: op.exp(emit(op.matmul(emit(op.matmul(x, WEIGHTS)), WEIGHTS)))
    )
    dataflow = DataflowGraph.from_function(mod["main"])
    costs, seeds = WorkloadCosts(mod, dataflow, TableCostModel({})), baselines(dataflow, TARGETS)
    sizes = {seed.name: len(seed.partitioning.candidates) for seed in seeds}
    monkeypatch.setattr(WorkloadCosts, "guess", lambda *_: pytest.fail("guessed"))
    prefetch = Prefetch([], BuildContext(Path("cache"), Path("work")))
    ranked, at_once = first_answers(seeds, costs, prefetch, hurried=True)
    assert at_once == 1
    assert [sizes[one.name] for one in ranked] == sorted(sizes[one.name] for one in ranked)
    assert len({one.partitioning.key() for one in seeds}) == len(ranked)
    # Whose libraries are still compiled is tried beside the first of the others: TVM may take
    # longer for a network than a compiler for the rest of a library.
    monkeypatch.setattr(
        Prefetch, "lacks", lambda _, targets: any(t.name.startswith("openvino") for t in targets)
    )
    late, at_once = first_answers(seeds, costs, prefetch, hurried=True)
    assert at_once == 2 and late[1].name == "single:openvino"
    assert [late[0], *late[2:]] == [one for one in ranked if one.name != "single:openvino"]
    # Nor does anybody wait for two libraries.
    monkeypatch.setattr(Prefetch, "lacks", lambda *_: True)
    assert first_answers(seeds, costs, prefetch, hurried=True)[1] == 1
    prefetch.close()


class _Log(TableCostModel):
    """Has measured what is in the table."""

    def recorded(self, workload: Workload, target: BackendTarget) -> Cost | None:
        (cost,) = self.estimate([workload], [target])
        return cost if cost.is_valid else None


@pytest.mark.parametrize("was_measured", [False, True])
def test_no_answer_waits_for_kernels_that_are_yet_to_be_chosen(
    was_measured: bool, tmp_path: Path
) -> None:
    """With everything compiled that libraries need CUTLASS's partitioning was tried first, and for
    a minute and longer there was no answer."""
    if "toy_tunable" not in backend_names():
        register_backend(ToyTunableBackend())
    targets = resolve_targets(["llvm", "toy_tunable"])
    mod = graph([(8, 64)], lambda emit, x: emit(op.nn.relu(x)))
    dataflow = DataflowGraph.from_function(mod["main"])
    table: dict[tuple[str, str], Cost | float] = {("relu 8x64", "tvm"): 1e-3}
    if was_measured:
        table["relu 8x64", "toy_tunable"] = 1e-7
    costs = WorkloadCosts(mod, dataflow, _Log(table))
    seeds = baselines(dataflow, targets)
    for seed in seeds:
        costs.seconds(seed.partitioning.candidates)
    assert by_promise(seeds, costs)[0].name != "single:tvm"
    with Prefetch((), BuildContext(tmp_path / "cache", tmp_path / "work")) as prefetch:
        (first, second), _ = first_answers(seeds, costs, prefetch, hurried=False)
        (hurried, _), _ = first_answers(seeds, costs, prefetch, hurried=True)
    assert hurried.name == "single:tvm"
    assert first.name == ("single:toy_tunable" if was_measured else "single:tvm")
    assert {first.name, second.name} == {"single:toy_tunable", "single:tvm"}


def test_tvm_alone_is_among_those_tried_first() -> None:
    """However little time there is, as long as there is any for two."""
    events: list[str] = []
    begin = time.monotonic()
    result = collage.optimize(
        MODEL,
        ["llvm", "onednn", "openblas", "openvino"],
        time_budget_sec=60.0,
        progress=lambda event: (
            events.append(event.message) if event.stage == "end to end" else None
        ),
    )
    assert time.monotonic() - begin < 200.0
    assert "single:tvm" in events
    timed = [row for row in result.report.end_to_end if row.median_sec is not None]
    assert any(row.chosen for row in timed)
    assert isinstance(result.module, tvm.IRModule)
