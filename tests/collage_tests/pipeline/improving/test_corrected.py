"""The loop between sums and wholes, on a simulated machine where sums do not come true."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from collage.backends.contract import BackendTarget, BuildContext, TargetSet, is_native
from collage.backends.contract.errors import ReplayMissError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.call_times import CallTime
from collage.cost.contest import Outcome, Rounds
from collage.cost.workload.workload import Workload
from collage.end_to_end import Contender, EndToEndComparison, Evaluation
from collage.end_to_end.evaluation import Lowered
from collage.passes.lower import partition_names
from collage.pipeline import evaluate_contenders, find_covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.improving.corrected import ROUNDS, CorrectedSearch, _Tried
from collage.pipeline.limits import Budget
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.targets import resolve_targets
from collage.testing import graph
from collage.testing.graphs import Emit

MICRO = 1e-6
ROUNDS_PLAYED = 9


class Alone(CostModel):
    """A product takes, alone, what a table says for its width and backend."""

    def __init__(self, table: dict[tuple[int, str], float]) -> None:
        self._table = table

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        return [self._of(*pair) for pair in zip(workloads, targets, strict=True)]

    def _of(self, workload: Workload, target: BackendTarget) -> Cost:
        seconds = self._table[workload.outputs[0].shape[-1], target.backend]
        return Cost(CostStatus.VALID, seconds, samples_sec=(seconds,))


class Machine(EndToEndComparison):
    """Each call of a library takes longer inside a model than alone."""

    def __init__(
        self,
        mod: tvm.IRModule,
        dataflow: DataflowGraph,
        targets: TargetSet,
        costs: WorkloadCosts,
        excess: Callable[[Candidate, float], float],
    ) -> None:
        super().__init__(mod, dataflow, targets, BuildContext(Path("cache"), Path("work")))
        self.costs, self.excess = costs, excess
        self.contests: list[tuple[str, ...]] = []
        self.left = 100
        self.late_after = 100
        self.loaded_in, self.quiet_from = 100, 100
        self.slower_than_told: Callable[[Partitioning], bool] = lambda partitioning: False

    def inside(self, candidate: Candidate) -> float:
        (alone,) = self.costs.seconds([candidate])
        assert alone is not None
        return alone if is_native(candidate.target) else alone + self.excess(candidate, alone)

    def whole(self, partitioning: Partitioning) -> float:
        told = sum(self.inside(c) for c in partitioning.candidates if not c.inline)
        return 2 * told if self.slower_than_told(partitioning) else told

    def _evaluate(self, lowered: Sequence[Lowered]) -> list[Evaluation]:
        if self.left == 0:
            raise ReplayMissError("the log holds no end-to-end time", value="")
        self.left -= 1
        self.contests.append(tuple(one.contender.name for one in lowered))
        found = [self._evaluation(one) for one in lowered]
        if len(self.contests) > self.late_after:
            # Who was tried out on its own before has a time, the others have none.
            alone = Rounds("tried out", found[-1].cost.samples_sec)
            late = [Evaluation.without_time(one.contender) for one in lowered[:-1]]
            return [*late, replace(found[-1], rounds=alone)]
        return found

    def _evaluation(self, lowered: Lowered) -> Evaluation:
        partitioning = lowered.contender.partitioning
        load = 3.0 if self.loaded_in <= len(self.contests) < self.quiet_from else 1.0
        seconds = (load * self.whole(partitioning),) * ROUNDS_PLAYED
        rounds = Rounds(f"contest {len(self.contests)}", seconds)
        calls = tuple(
            CallTime(f"fused_{name}" if is_native(part.target) else name, self.inside(part))
            for name, part in partition_names(partitioning).items()
        )
        cost = Cost.of_samples(seconds)
        return Evaluation(*_fields(lowered), cost, 0.0, rounds, calls)


def _fields(lowered: Lowered) -> tuple[Contender, tvm.IRModule, str]:
    return lowered.contender, lowered.module, lowered.key


class Loop:
    """A chain of products of different widths, over TVM and OpenBLAS."""

    def __init__(
        self,
        alone: Sequence[tuple[float, float]],
        excess: Callable[[Candidate, float], float],
    ) -> None:
        widths = [8 + n for n in range(len(alone) + 1)]

        def body(emit: Emit, x: relax.Var) -> relax.Expr:
            value: relax.Expr = x
            for rows, columns in itertools.pairwise(widths):
                weights = relax.const(np.ones((rows, columns), "float32"))
                value = emit(relax.op.matmul(value, weights))
            return relax.op.nn.relu(value)

        mod = graph([(4, widths[0])], body)
        table = {
            (width, backend): seconds
            for width, pair in zip(widths[1:], alone, strict=True)
            for backend, seconds in zip(("tvm", "openblas"), pair, strict=True)
        }
        self.dataflow = DataflowGraph.from_function(mod["main"], mod)
        targets = resolve_targets(["llvm", "openblas"])
        self.costs = WorkloadCosts(mod, self.dataflow, Alone(table))
        self.machine = Machine(mod, self.dataflow, targets, self.costs, excess)
        self.covers = find_covers(self.dataflow, targets, "search", self.costs)
        self.first = evaluate_contenders(self.machine, self.covers.contenders)

    def search(self, budget: Budget | None = None, *, replay: bool = False) -> CorrectedSearch:
        return CorrectedSearch(
            *(self.machine, self.dataflow, self.covers, self.costs),
            repair=lambda contender: contender,
            rules=(),
            fits=lambda contender: True,
            budget=budget or Budget(),
            replay=replay,
        )

    def best_sec(self) -> float:
        """Of all covers by the candidates that were found."""
        candidates = self.covers.found.candidates
        everything = self.dataflow.all_nodes

        def rest(covered: int) -> float:
            if covered == everything:
                return 0.0
            first = ~covered & (covered + 1)
            fitting = [c for c in candidates if c.nodes & first and not c.nodes & covered]
            ways = [self.machine.inside(c) + rest(covered | c.nodes) for c in fitting]
            return min(ways, default=float("inf"))

        return rest(0)


# One layer gains much by the library, the others less than it takes to hand over to it.
MIXED = [(20 * MICRO, 18 * MICRO)] * 3 + [(90 * MICRO, 30 * MICRO)] + [(20 * MICRO, 18 * MICRO)] * 2


def hand_over(candidate: Candidate, alone: float) -> float:
    return 6 * MICRO


def test_an_answer_is_found_that_neither_the_sum_nor_a_single_backend_is() -> None:
    loop = Loop(MIXED, hand_over)
    found = loop.search().improve(loop.first)
    assert found.winner.contender.name.startswith("search:")
    assert found.winner.cost.median_sec < loop.first.winner.cost.median_sec
    assert found.winner.cost.median_sec == pytest.approx(loop.best_sec())
    libraries = [c for c in found.winner.contender.partitioning.candidates if not c.inline]
    assert sum(not is_native(c.target) for c in libraries) == 1
    # All were timed in one contest at last, and stand in the report.
    assert found.winner.contender.name in loop.machine.contests[-1]
    assert {one.contender.name for one in loop.first.evaluations} <= {
        one.contender.name for one in found.evaluations
    }


def test_who_was_slower_than_the_one_that_an_answer_beats_does_not_play_again() -> None:
    loop = Loop(MIXED, hand_over)
    # The last contest takes three times as long as the ones before.
    told = zip(loop.first.evaluations, loop.first.comparisons, strict=True)
    slower = [
        one.contender.name
        for one, comparison in told
        if comparison is not None and comparison.outcome is Outcome.SLOWER
    ]
    assert slower
    loop.machine.loaded_in = len(loop.machine.contests) + 2
    found = loop.search().improve(loop.first)
    assert found.winner.contender.name in loop.machine.contests[-1]
    assert not set(slower) & set(loop.machine.contests[-1])
    assert loop.first.winner.contender.name in loop.machine.contests[-1]
    for one in found.evaluations:
        truth = loop.machine.whole(one.contender.partitioning)
        assert one.cost.median_sec == pytest.approx(3.0 * truth)


def test_sums_that_come_true_are_not_searched_again() -> None:
    loop = Loop(MIXED, lambda candidate, alone: 0.0)
    contests = len(loop.machine.contests)
    assert loop.search().improve(loop.first) is loop.first
    assert len(loop.machine.contests) == contests


def test_answers_that_lost_stand_in_the_report_and_decide_nothing() -> None:
    """Of the first contest all but one came out the same, and two answers lost in one of their own:
    the larger contest is not the one that counts."""
    loop = Loop(MIXED, hand_over)
    search, first = loop.search(), loop.first
    slow = [
        _Tried(
            replace(
                first.winner,
                contender=replace(first.winner.contender, name=f"search:{n}"),
                cost=Cost.of_samples((n * 1e-3,) * ROUNDS_PLAYED),
                rounds=Rounds("their own", (n * 1e-3,) * ROUNDS_PLAYED),
                key=f"answer {n}",
            )
        )
        for n in (2, 3, 4)
    ]
    alone = Evaluated((first.winner,), first.winner, (None,))
    found = search._concluded(alone, slow, first.winner)
    assert found.winner is first.winner
    assert [one.contender.name for one in found.evaluations[1:]] == [
        "search:2",
        "search:3",
        "search:4",
    ]


def test_times_of_a_quiet_contest_are_told_beside_those_of_a_loaded_one() -> None:
    """What was tried when nobody else ran any longer looked three times as fast as who beat it."""
    loop = Loop(MIXED, hand_over)
    # Whatever the loop comes up with takes twice what its parts tell, and so loses.
    known = {one.contender.partitioning.key() for one in loop.first.evaluations}
    loop.machine.slower_than_told = lambda partitioning: partitioning.key() not in known
    loop.machine.loaded_in = len(loop.machine.contests) + 1
    loop.machine.quiet_from = loop.machine.loaded_in + 1
    first = evaluate_contenders(loop.machine, loop.covers.contenders)
    found = loop.search().improve(first)
    assert found.winner.key == first.winner.key
    tried = found.evaluations[len(first.evaluations) :]
    assert tried
    for one, verdict in zip(tried, found.comparisons[len(first.evaluations) :], strict=True):
        truth = loop.machine.whole(one.contender.partitioning)
        assert one.cost.median_sec == pytest.approx(3.0 * truth)
        assert one.cost.median_sec > first.winner.cost.median_sec
        assert verdict is not None and verdict.outcome is Outcome.SLOWER


@pytest.mark.parametrize("contests", range(1, 4))
def test_whoever_has_a_time_of_before_alone_does_not_win_for_that(contests: int) -> None:
    loop = Loop(MIXED, hand_over)
    loop.machine.late_after = contests
    found = loop.search().improve(loop.first)
    assert found.winner.cost.median_sec <= loop.first.winner.cost.median_sec
    assert found.winner.rounds and found.winner.rounds.contest != "tried out"


def test_no_time_is_no_answer() -> None:
    loop = Loop(MIXED, hand_over)
    budget = Budget(0.0)
    assert loop.search(budget).improve(loop.first) is loop.first


@pytest.mark.parametrize("contests", range(4))
def test_a_replay_ends_where_the_log_does(contests: int) -> None:
    """After whichever contest: it gives what was best by then, and nothing is an error."""
    loop = Loop(MIXED, hand_over)
    loop.machine.left = contests
    found = loop.search(replay=True).improve(loop.first)
    assert found.winner.cost.median_sec <= loop.first.winner.cost.median_sec
    loop.machine.left = 0
    with pytest.raises(ReplayMissError):
        loop.search().improve(loop.first)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(5, 60), st.integers(5, 60)).map(
            lambda pair: (pair[0] * MICRO, pair[1] * MICRO)
        ),
        min_size=2,
        max_size=6,
    ),
    st.integers(0, 30),
    st.floats(0.0, 0.6),
)
def test_it_never_makes_things_worse_and_ends(
    alone: list[tuple[float, float]], each: int, share: float
) -> None:
    loop = Loop(alone, lambda candidate, seconds: each * MICRO + share * seconds)
    contests = len(loop.machine.contests)
    found = loop.search().improve(loop.first)
    assert found.winner.cost.median_sec <= loop.first.winner.cost.median_sec
    assert len(loop.machine.contests) - contests <= ROUNDS + 1
    # Where the excess is what can be told from a few partitions, the answer is nearly the best.
    assert found.winner.cost.median_sec <= 1.05 * loop.best_sec() + 1e-12
