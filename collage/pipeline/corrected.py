"""The loop between sums and wholes: search again with what partitions take inside whole models.

Costs of candidates alone do not add up to a model's time: weights that are warm alone are cold in
the whole, and threads are handed over. Every model that was timed whole was taken apart, too, which
corrects the costs; the search over corrected costs may have another answer, which is timed in turn,
until its answer stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collage.backends.contract.errors import ReplayMissError, SearchError
from collage.candidate_costs import WorkloadCosts
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender, EndToEndComparison, Evaluation
from collage.end_to_end.inside import seconds_inside
from collage.pipeline.costing.inside_costs import InsideCosts
from collage.pipeline.covers import Covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.limits import Budget
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import PartitionRule
from collage.search.strategies.lazy_search import search

ROUNDS = 4
"""Answers that are tried at the most: each compiles and times a whole model."""

_WORTH_IT = 0.98
"""Of what the fastest takes by its parts inside it: an answer that promises no less would at best
tie with it."""


@dataclass(frozen=True)
class CorrectedSearch:
    """Searches again, with costs that are corrected by what was seen inside whole models.

    Attributes
    ----------
    comparison : EndToEndComparison
        Times answers against the fastest so far.
    graph : DataflowGraph
        Of the normalized module.
    covers : Covers
        Have the candidates.
    costs : WorkloadCosts
        Of candidates alone.
    repair : callable
        Takes out what libraries refuse; None where nothing else may run that.
    rules : sequence of PartitionRule
        Last resorts of a search.
    fits : callable
        Whether a contender may be had at all.
    budget : Budget
        No answer is tried that there is no time for.
    replay : bool
        Whether to end where the log does.
    progress : callable
        Told of each round.
    """

    comparison: EndToEndComparison
    graph: DataflowGraph
    covers: Covers
    costs: WorkloadCosts
    repair: Callable[[Contender], Contender | None]
    rules: Sequence[PartitionRule]
    fits: Callable[[Contender], bool]
    budget: Budget
    replay: bool = False
    progress: ProgressCallback = ignore

    def improve(self, evaluated: Evaluated) -> Evaluated:
        """How all did, with the answers that this found among them.

        Parameters
        ----------
        evaluated : Evaluated
            The contest with the first answer.

        Returns
        -------
        Evaluated
            The same where no answer promised to be faster.
        """
        inside, leader = InsideCosts(self.costs), evaluated.winner
        leader_sec = leader.cost.median_sec
        tried: list[Evaluation] = []
        known = {one.contender.partitioning.key() for one in evaluated.evaluations}
        taken_apart = self._note(inside, evaluated.evaluations)
        for number in range(2, ROUNDS + 2):
            if not taken_apart or not self._is_time():
                break
            try:
                found = self._answer(inside, leader, [*evaluated.evaluations, *tried], number)
                if found is None or found.partitioning.key() in known:
                    break
                known.add(found.partitioning.key())
                before, after = self.comparison.compare([leader.contender, found])
            except ReplayMissError:
                if not self.replay:
                    raise
                break  # Whoever made the log went no further.
            if not before.cost.is_valid:
                break  # There was no time for it.
            tried.append(after)
            # Times of different contests do not compare; ratios to the same model do.
            unit = leader_sec / before.cost.median_sec
            taken_apart = self._note(inside, [after], unit)
            if Evaluated.of([before, after]).winner is after:
                leader, leader_sec = after, unit * after.cost.median_sec
        return self._concluded(evaluated, tried, leader)

    def _note(
        self, inside: InsideCosts, evaluations: Sequence[Evaluation], unit: float = 1.0
    ) -> bool:
        """Whether any of them could be taken apart.

        What its parts took is made to add up to what it took in the contest, where all were timed
        in the same seconds.
        """
        noted: set[str] = set()
        for one in evaluations:
            inside_sec = math.fsum(call.median_sec for call in one.calls)
            if one.cost.is_valid and inside_sec > 0.0 and one.key not in noted:
                noted.add(one.key)
                parts = seconds_inside(one.contender.partitioning, one.calls, self.costs.guess)
                scale = unit * one.cost.median_sec / inside_sec
                inside.note({part: scale * seconds for part, seconds in parts.items()})
        return bool(noted)

    def _is_time(self) -> bool:
        return self.replay or self.budget.contenders_that_fit(1) > 0

    def _answer(
        self,
        inside: InsideCosts,
        leader: Evaluation,
        evaluations: Sequence[Evaluation],
        number: int,
    ) -> Contender | None:
        """What the search has to say now; None where that promises nothing."""
        seeds = [one.contender.partitioning for one in evaluations if one.cost.is_valid]
        try:
            result = search(
                *(self.graph, self.covers.found.candidates, inside),
                seeds=seeds,
                should_stop=lambda: self.budget.measuring.is_up and not self.replay,
                last_resorts=self.rules,
            )
        except SearchError:
            # Of candidates that are known, which is all that there is time for.
            return None
        if result.partitioning is None:
            return None
        beaten_sec = _seconds(leader.contender.partitioning, inside)
        found_sec = _seconds(result.partitioning, inside)
        message = f"by what parts take inside: {found_sec * 1e3:.3f} ms for {beaten_sec * 1e3:.3f}"
        self.progress(ProgressEvent("correct", number - 1, ROUNDS, message))
        if not found_sec < _WORTH_IT * beaten_sec:
            return None
        alone_sec = _seconds(result.partitioning, self.costs)
        named = Contender(f"search:{number}", replace(result.partitioning, seconds=alone_sec))
        repaired = self.repair(named)
        return repaired if repaired is not None and self.fits(repaired) else None

    def _concluded(
        self, evaluated: Evaluated, tried: Sequence[Evaluation], leader: Evaluation
    ) -> Evaluated:
        """One contest of all, where an answer was faster."""
        if leader.key == evaluated.winner.key:
            return Evaluated.of([*evaluated.evaluations, *tried]) if tried else evaluated
        running = [one for one in evaluated.evaluations if one.cost.is_valid]
        others = [one for one in evaluated.evaluations if not one.cost.is_valid]
        others += [one for one in tried if one.key != leader.key]
        try:
            last = self.comparison.compare([leader.contender, *(one.contender for one in running)])
        except ReplayMissError:
            if not self.replay:
                raise
            return evaluated
        if not any(one.cost.is_valid for one in last):
            return evaluated
        return Evaluated.of([*last, *others])


def _seconds(partitioning: Partitioning, costs: InsideCosts | WorkloadCosts) -> float:
    return math.fsum(map(costs.guess, partitioning.candidates))
