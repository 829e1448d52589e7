"""The search over one function, from its graph to its fastest library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.cost.deadline import NEVER, Deadline
from collage.cost.reference import Metric
from collage.end_to_end import Contender, EndToEndComparison, NothingRunsError, PartitionRepair
from collage.pipeline.costing import Costing
from collage.pipeline.covers import Covers, find_covers, seeds_of
from collage.pipeline.evaluated import (
    evaluate_in_time,
    evaluate_replayed,
)
from collage.pipeline.first_answers import find_beside, first_answers
from collage.pipeline.imported import Imported
from collage.pipeline.improving.corrected import CorrectedSearch
from collage.pipeline.improving.refined import refine_winner
from collage.pipeline.improving.second_look import SecondLook
from collage.pipeline.inputs.samples import Inputs
from collage.pipeline.layouts import with_layouts
from collage.pipeline.limits import AnswerInHand, Budget
from collage.pipeline.memory_limit import MemoryLimit
from collage.pipeline.precision.calibrated import calibrated
from collage.pipeline.precision.calibration import AUTO
from collage.pipeline.precision.contenders import promised_within, with_frontier
from collage.pipeline.precision.error_model import LARGEST_DIFFERENCE, ErrorModel
from collage.pipeline.precision.targets import computes_in_bytes
from collage.pipeline.prefetch import Prefetch
from collage.pipeline.prepared import prepare_module
from collage.pipeline.restrict import Wishes, restrict
from collage.pipeline.results.assemble import assemble_result, report_of
from collage.pipeline.results.result import Result
from collage.pipeline.rival_contests import patience_sec
from collage.pipeline.session import Session
from collage.search.dataflow import DataflowGraph
from collage.search.layouts import with_numbers_of
from collage.search.restrictions import Restrictions
from collage.search.rules import PartitionRule, RestrictedRule, last_resorts

_ERRORS_SHARE = 0.2
"""Of the time for measuring, to find out what fewer digits do."""

_FRONTIER_SHARE = 0.05
"""Of all of the time, to look between time and error: by then nothing is measured any longer."""


@dataclass(frozen=True)
class Search:
    """How a model's functions are searched: what all of them share.

    Attributes
    ----------
    session : Session
        Targets, log and folders.
    costing : Costing
        Opened already.
    asked : CostModel
        What it gave when it was.
    prefetch : Prefetch
        What is being compiled in the background.
    strategy, covers, pin, ban, refine_trials, refine_storage, seed, memory_limit_bytes
        As :func:`collage.optimize` takes them.
    max_error, calibration, metric
        As :func:`collage.optimize` takes them; the metric is checked.
    layouts : bool
        Whether they are chosen, too.
    graphs : sequence of DataflowGraph
        Of all functions; what is pinned or banned is in one of them.
    log_is_of_use : bool
        Whether it held anything at the beginning, and may know what there is no time to measure.
    """

    session: Session
    costing: Costing
    asked: CostModel
    prefetch: Prefetch
    strategy: str = "search"
    covers: int = 1
    pin: Wishes | None = None
    ban: Wishes | None = None
    graphs: Sequence[DataflowGraph] = ()
    refine_trials: int = 0
    refine_storage: str | None = None
    seed: int = 0
    memory_limit_bytes: int | None = None
    max_error: float | None = None
    calibration: str = AUTO
    metric: Metric | None = None
    layouts: bool = False
    log_is_of_use: bool = True

    def best_of(self, imported: Imported, budget: Budget, inputs: Inputs | None) -> Result:
        """The fastest partitioning of one function, compiled.

        Parameters
        ----------
        imported : Imported
            The function.
        budget : Budget
            Its time; the costing keeps to it.
        inputs : mapping or sequence of mapping, optional
            What to run it on.

        Returns
        -------
        Result
            With its report; not exported.

        Raises
        ------
        UserError
            As :func:`collage.optimize` does.
        """
        with ExitStack() as stack:
            return self._best_of(imported, budget, inputs, stack)

    def _best_of(
        self, imported: Imported, budget: Budget, inputs: Inputs | None, stack: ExitStack
    ) -> Result:
        session, costing = self.session, self.costing
        targets, progress, replay = session.targets, session.progress, session.replay
        imported = prepare_module(imported, targets, self.seed, progress).over(session.weights)
        if self.max_error is not None and computes_in_bytes(targets):
            imported = calibrated(imported, inputs, self.calibration, self.seed, progress)
        imported = with_layouts(imported, targets.device) if self.layouts else imported
        budget.operators = len(imported.graph)
        measuring = NEVER if replay else budget.measuring
        costs = WorkloadCosts(imported.mod, imported.graph, self.asked, measuring)
        comparison = costing.comparison(
            *(imported, costs, self.seed, inputs, self.max_error, self.metric)
        )
        wishes = restrict(imported.graph.plain, targets, self.pin, self.ban, self.graphs)
        restrictions = with_numbers_of(imported.graph, wishes.restrictions)
        began = budget.elapsed_sec
        seeds = seeds_of(imported.graph, targets, self.strategy, restrictions)
        matching_sec = budget.elapsed_sec - began
        limit = MemoryLimit(imported, targets, comparison, self.memory_limit_bytes)
        hand = stack.enter_context(AnswerInHand(comparison, budget, progress))
        small = list(filter(limit.fits, seeds))
        self._answer_early(small, costs, hand, comparison, budget)
        errors = self._errors(imported, comparison, budget)
        if errors is not None:
            hand.widen(promised_within(small, errors))
            self._let_answer(hand, comparison)
        look = SecondLook(comparison, replay=replay, progress=progress)
        covering = _Covering(
            *(self, imported, budget, seeds, restrictions, measuring),
            looking=NEVER if replay or not small else self.looking(budget, matching_sec),
            errors=errors,
            limit=limit,
        )
        while True:
            covers = covering.find(costs)
            try:
                if replay:
                    evaluated = evaluate_replayed(comparison, covers.contenders)
                else:
                    evaluated = evaluate_in_time(comparison, covers.contenders, costs, budget, hand)
            except NothingRunsError as err:
                if not look.is_worth_it(err.evaluations):
                    raise look.failure(err) from err
            else:
                # Whoever has no time to measure has none to search anew: something runs.
                late = budget.measuring.is_up and not replay
                if late or not look.is_worth_it(evaluated.evaluations):
                    break
            # As a replay does, which has the culprits from the log: nothing else is remembered.
            costs = WorkloadCosts(imported.mod, imported.graph, self.asked, measuring)
        if errors is None and self.strategy == "search":
            evaluated = covering.corrected(comparison, covers, costs).improve(evaluated)
        evaluated = refine_winner(
            *(comparison, imported.graph, covers, evaluated),
            budget=budget,
            trials=self.refine_trials,
            storage=self.refine_storage,
            seed=self.seed,
            fits=limit.fits,
            progress=progress,
        )
        evaluated = limit.with_left_out(evaluated)
        library = comparison.library(evaluated.winner)
        report = report_of(
            *(session, imported, costing, costs, covers, evaluated, budget),
            remarks=(*wishes.remarks, *limit.remarks, *covers.remarks),
            max_error=self.max_error,
        )
        return assemble_result(session, imported, evaluated, comparison, library, report)

    def _answer_early(
        self,
        small: Sequence[Contender],
        costs: WorkloadCosts,
        hand: AnswerInHand,
        comparison: EndToEndComparison,
        budget: Budget,
    ) -> None:
        """Have something to return soon, and the cores free for whoever measures on them."""
        costing, prefetch = self.costing, self.prefetch
        if small and budget.is_limited and not self.session.replay:
            if not costing.builds_beside:
                prefetch.wait(budget.preparing)
            ranked, at_once = first_answers(small, costs, prefetch, hurried=budget.is_late)
            if costing.builds_beside:
                find_beside(hand, ranked, budget.measuring)
            else:
                hand.find(ranked, at_once)
        if not costing.builds_beside:
            self._let_answer(hand, comparison)
            prefetch.wait(budget.measuring)

    def _let_answer(self, hand: AnswerInHand, comparison: EndToEndComparison) -> None:
        """Wait for the answer where the cores are what is going to be timed on."""
        if not self.costing.builds_beside:
            hand.answer()
            comparison.settle()

    def _errors(
        self, imported: Imported, comparison: EndToEndComparison, budget: Budget
    ) -> ErrorModel | None:
        """What fewer digits do; None where no error is allowed."""
        if self.max_error is None or self.strategy != "search":
            return None
        comparison.settle()
        samples = self.costing.samples
        if samples is None:
            return None
        share_sec = _ERRORS_SHARE * budget.measuring.left_sec()
        return ErrorModel.of(
            # What a metric says of a difference shows when whole models are compared.
            self.max_error if self.metric is None else LARGEST_DIFFERENCE,
            *(imported.mod, imported.graph, self.session.targets, samples.samples),
            Deadline.after(share_sec) if math.isfinite(share_sec) else NEVER,
            self.session.progress,
        )

    def looking(self, budget: Budget, matching_sec: float) -> Deadline:
        """When to begin to look for candidates would be too late for anything to come of it.

        Parameters
        ----------
        budget : Budget
            Of the function.
        matching_sec : float
            What the partitionings that need no costs took.

        Returns
        -------
        Deadline
            Moves with the budget's own.
        """
        # To find them all takes about as long as the matches did that the first answers are of.
        end = budget.compiling if self.log_is_of_use else budget.measuring
        return Deadline(lambda: end.end - matching_sec)


@dataclass(frozen=True)
class _Covering:
    """How covers of one function are found, and found anew when one of them turns out wrong."""

    search: Search
    imported: Imported
    budget: Budget
    seeds: Sequence[Contender]
    restrictions: Restrictions
    measuring: Deadline
    looking: Deadline
    errors: ErrorModel | None
    limit: MemoryLimit

    def find(self, costs: WorkloadCosts) -> Covers:
        """Those that can run and keep to the limits."""
        session, imported = self.search.session, self.imported
        targets, progress = session.targets, session.progress
        covers = find_covers(
            *(imported.graph, targets, self.search.strategy, costs, progress),
            seeds=self.seeds,
            restrictions=self.restrictions,
            deadline=self.measuring,
            looking=self.looking,
            patience=lambda held: patience_sec(self.search.costing.stats(), self.measuring, held),
            best=self.search.covers if self.errors is None else 1,
        )
        repair = self._repair(costs)
        compiling = NEVER if session.replay else self.budget.compiling
        covers = covers.repaired(repair, compiling, self.restrictions)
        mended, rules = partial(_repaired, repair, self.restrictions), self._rules()
        if self.errors is not None:
            covers = with_frontier(
                *(covers, imported.graph, costs, self.errors, mended, rules, self.measuring),
                *(_looking_between(self.budget), progress),
            )
        return self.limit.keep(covers, costs, mended, rules, self.measuring)

    def corrected(
        self, comparison: EndToEndComparison, covers: Covers, costs: WorkloadCosts
    ) -> CorrectedSearch:
        """What looks for others, once some were timed whole.

        Parameters
        ----------
        comparison : EndToEndComparison
            That timed them.
        covers : Covers
            Those that were found at first.
        costs : WorkloadCosts
            That they were found by.
        """
        session = self.search.session
        return CorrectedSearch(
            *(comparison, self.imported.graph, covers, costs),
            repair=partial(_repaired, self._repair(costs), self.restrictions),
            rules=self._rules(),
            fits=self.limit.fits,
            budget=self.budget,
            replay=session.replay,
            progress=session.progress,
        )

    def _repair(self, costs: WorkloadCosts) -> PartitionRepair:
        session, imported = self.search.session, self.imported
        return PartitionRepair(
            *(imported.mod, imported.graph, session.targets.native, session.context),
            *(costs, session.progress),
        )

    def _rules(self) -> list[PartitionRule]:
        rules = last_resorts(self.search.session.targets.native)
        return [RestrictedRule(rule, self.restrictions) for rule in rules]


def _looking_between(budget: Budget) -> Deadline:
    """When to end looking for partitionings between time and error."""
    if budget.total_sec is None:
        return NEVER
    return Deadline.after(_FRONTIER_SHARE * budget.total_sec).or_earlier(budget.compiling)


def _repaired(
    repair: PartitionRepair, restrictions: Restrictions, contender: Contender
) -> Contender | None:
    repaired = repair.repair(contender)
    return repaired if all(map(restrictions.allow, repaired.partitioning.candidates)) else None
