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
from collage.cost.contest import Outcome, PairedComparison
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender, EndToEndComparison, Evaluation
from collage.end_to_end.inside import seconds_inside
from collage.pipeline.costing.inside_costs import InsideCosts
from collage.pipeline.covers import Covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.limits import Budget
from collage.report.data import EQUAL
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import PartitionRule
from collage.search.strategies import search

ROUNDS = 4
"""At the most: each compiles and times one whole model, or two."""

_IN_VAIN = 2
"""Rounds in a row whose answers were not faster are enough: what gained anything in the searches
that were looked at came of the first two."""

Key = tuple[tuple[int, str], ...]
"""Of a partitioning."""

_WORTH_IT = 0.98
"""Of what the fastest takes by its parts inside it: an answer that promises no less would at best
tie with it."""


@dataclass(frozen=True)
class _Tried:
    """One that was timed beside the leader in a contest of their own.

    Attributes
    ----------
    evaluation : Evaluation
        With the time that it would have had in the first contest, by what the leader took in both:
        while a machine is disturbed everything takes several times as long.
    comparison : PairedComparison or None
        How it stood against the leader.
    """

    evaluation: Evaluation
    comparison: PairedComparison | None = None

    @property
    def key(self) -> str:
        return self.evaluation.key

    def times(self, factor: float) -> _Tried:
        """The same, as if everything had taken so many times as long."""
        cost = self.evaluation.cost.times(factor)
        return replace(self, evaluation=replace(self.evaluation, cost=cost))


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

        Returns
        -------
        Evaluated
            The same where no answer promised to be faster.
        """
        inside, leader = InsideCosts(self.costs), evaluated.winner
        leader_sec = leader.cost.median_sec
        tried: list[_Tried] = []
        known = {one.contender.partitioning.key() for one in evaluated.evaluations}
        taken_apart, in_vain = self._note(inside, evaluated.evaluations), 0
        for number in range(1, ROUNDS + 1):
            if not taken_apart or in_vain == _IN_VAIN or not self._is_time():
                break
            try:
                timed = [*evaluated.evaluations, *(one.evaluation for one in tried)]
                partitionings = self._answers(inside, leader, timed, number)
                found = self._contenders(partitionings, known, len(tried))
                if not found:
                    break
                before, *after = self.comparison.compare([leader.contender, *found])
            except ReplayMissError:
                if not self.replay:
                    raise
                break  # Whoever made the log went no further.
            if not before.cost.is_valid:
                break  # There was no time for it.
            # Times of different contests do not compare; ratios to the same model do.
            unit = leader_sec / before.cost.median_sec
            taken_apart = self._note(inside, after, unit)
            contest = Evaluated.of([before, *after])
            tried += [
                _Tried(replace(one, cost=one.cost.times(unit)), comparison)
                for one, comparison in zip(after, contest.comparisons[1:], strict=True)
            ]
            in_vain += 1
            if contest.winner is not before:
                in_vain = 0
                leader, leader_sec = contest.winner, unit * contest.winner.cost.median_sec
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

    def _answers(
        self,
        inside: InsideCosts,
        leader: Evaluation,
        evaluations: Sequence[Evaluation],
        number: int,
    ) -> list[Partitioning]:
        """What the search has to say now, of those that promise something.

        One is the best as far as can be foreseen; the other is made of nothing but what ran inside
        whole models, so that little has to be foreseen.
        """
        beaten_sec = _seconds(leader.contender.partitioning, inside)
        seeds = [one.contender.partitioning for one in evaluations if one.cost.is_valid]
        found = [self._cheapest(inside, seeds), self._cheapest(inside.seen_only(), seeds)]
        promised = {one: _seconds(one, inside) for one in found if one is not None}
        best_sec = min(promised.values(), default=beaten_sec)
        message = f"by what parts take inside: {best_sec * 1e3:.3f} ms for {beaten_sec * 1e3:.3f}"
        self.progress(ProgressEvent("correct", number, ROUNDS, message))
        return [one for one, seconds in promised.items() if seconds < _WORTH_IT * beaten_sec]

    def _cheapest(
        self, costs: CandidateCosts, seeds: Sequence[Partitioning]
    ) -> Partitioning | None:
        try:
            return search(
                *(self.graph, self.covers.found.candidates, costs),
                seeds=seeds,
                should_stop=lambda: self.budget.measuring.is_up and not self.replay,
                last_resorts=self.rules,
                tolerance=EQUAL,
            ).partitioning
        except SearchError:
            # Of candidates that are known, which is all that there is time for.
            return None

    def _contenders(
        self, partitionings: Sequence[Partitioning], known: set[Key], tried: int
    ) -> list[Contender]:
        """Those that can be had and were not timed yet, which are known from now on."""
        found: list[Contender] = []
        for partitioning in partitionings:
            if partitioning.key() in known:
                continue
            known.add(partitioning.key())
            alone_sec = _seconds(partitioning, self.costs)
            name = f"search:{2 + tried + len(found)}"
            repaired = self.repair(Contender(name, replace(partitioning, seconds=alone_sec)))
            if repaired is not None and self.fits(repaired):
                known.add(repaired.partitioning.key())
                found.append(repaired)
        return found

    def _concluded(
        self, evaluated: Evaluated, tried: Sequence[_Tried], leader: Evaluation
    ) -> Evaluated:
        """One contest, where an answer was faster, of it and all that were not slower than who won
        before: who was lost to one that has lost to this answer."""
        if leader.key == evaluated.winner.key:
            return _beside(evaluated, tried)
        pairs = list(zip(evaluated.evaluations, evaluated.comparisons, strict=True))
        running = [one for one, told in pairs if one.cost.is_valid and not _is_beaten(told)]
        others = [_Tried(one) for one, told in pairs if not one.cost.is_valid or _is_beaten(told)]
        # How they stood against who led before says nothing of how they stand against this one.
        others += [replace(one, comparison=None) for one in tried if one.key != leader.key]
        try:
            last = self.comparison.compare([leader.contender, *(one.contender for one in running)])
        except ReplayMissError:
            if not self.replay:
                raise
            return evaluated
        if not _is_one_contest(last):
            # The time was up: what was timed on its own before does not compare.
            return _beside(evaluated, tried)
        # Times of before, as who won then has them in both contests.
        again = next(one for one in last if one.key == evaluated.winner.key)
        unit = again.cost.median_sec / evaluated.winner.cost.median_sec
        return _beside(Evaluated.of(last), [one.times(unit) for one in others])


def _is_beaten(comparison: PairedComparison | None) -> bool:
    return comparison is not None and comparison.outcome in (Outcome.SLOWER, Outcome.LEFT)


def _is_one_contest(evaluations: Sequence[Evaluation]) -> bool:
    """Whether all were timed in the same rounds."""
    contests = {one.rounds.contest if one.rounds is not None else "" for one in evaluations}
    return len(contests) == 1 and all(one.cost.is_valid for one in evaluations)


def _beside(evaluated: Evaluated, others: Sequence[_Tried]) -> Evaluated:
    """A contest's result, and others that took no part in it."""
    if not others:
        return evaluated
    return Evaluated(
        (*evaluated.evaluations, *(one.evaluation for one in others)),
        evaluated.winner,
        (*evaluated.comparisons, *(one.comparison for one in others)),
    )


def _seconds(partitioning: Partitioning, costs: InsideCosts | WorkloadCosts) -> float:
    return math.fsum(map(costs.guess, partitioning.candidates))
