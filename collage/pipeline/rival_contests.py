"""The answer's parts and their closest rivals are timed together, until the answer stands.

The search adds up times that were taken one by one. Of many candidates those win that were timed at
a lucky moment, while another program slept; and who was timed at a bad one is not looked at again.
So what decides is timed once more: the parts of the answer, and whatever would replace some of them
if it took as little of its time alone as the luckiest do. All of them in the same rounds, in random
order; who is decided leaves. With these times the search runs again, and so on.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.backends.contract.errors import ReplayMissError, SearchError
from collage.candidate_costs import WorkloadCosts
from collage.cost.contest import Exchange
from collage.cost.deadline import Deadline
from collage.cost.measure.replay import MeasureStats
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.pipeline.costing.inside_costs import SeenCosts
from collage.report.data import EQUAL
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.strategies import Rivalry, SearchResult, rivalries, search

_CONTESTS = 4
"""At the most."""

_ROWS = 64
"""Workloads of a contest: a round of more takes longer than others leave a machine as it is."""

_SHARE = 0.1
"""Of what measuring took, for all contests together,"""

_LEAST_SEC = 3.0
"""and so much at the least,"""

_SHARE_OF_LEFT = 0.3
"""unless there is little time left."""

Row = tuple[object, object]
"""A workload on a target."""


class RivalContests:
    """Contests of what an answer is made of with what it might be made of.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    costs : WorkloadCosts
        Get what candidates take together.
    patience : callable
        Given how many contests were held, seconds for all of them together, as of now.
    progress : callable, optional
        Told of each contest.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        costs: WorkloadCosts,
        patience: Callable[[int], float] = lambda contests: math.inf,
        progress: ProgressCallback = ignore,
    ) -> None:
        self._graph, self._costs = graph, costs
        self._patience, self._progress = patience, progress
        self._spent_sec = 0.0
        self._timed: set[Row] = set()
        self._contests = 0
        self._first: Partitioning | None = None
        self._last: Partitioning | None = None

    def settle(
        self,
        candidates: Sequence[Candidate],
        result: SearchResult | None,
        again: Callable[[], SearchResult | None],
    ) -> SearchResult | None:
        """The answer that stands, or the last one that there was time for.

        Parameters
        ----------
        candidates : sequence of Candidate
            All that there are.
        result : SearchResult or None
            What the search found; nothing is done unless it is complete.
        again : callable
            Searches with the costs that there are then.

        Returns
        -------
        SearchResult or None
            By the costs of the last contest.
        """
        if not self._costs.times_together:
            return result
        while result is not None and result.complete and result.partitioning is not None:
            self._first = self._first or result.partitioning
            self._last = result.partitioning
            if self._contests == _CONTESTS or not self._contest(candidates, result.partitioning):
                return self._of_sure_ones(candidates, result, result.partitioning)
            try:
                found = again()
            except ReplayMissError:
                break  # Whoever made the log went no further.
            if found is None or not found.complete:
                break  # There was no time for what it wanted to know besides.
            result = replace(
                found,
                evaluated=result.evaluated + found.evaluated,
                rounds=result.rounds + found.rounds,
                expanded=result.expanded + found.expanded,
            )
        return result

    def _of_sure_ones(
        self, candidates: Sequence[Candidate], result: SearchResult, answer: Partitioning
    ) -> SearchResult:
        """The answer; where there was no time to time all of its parts with the others, the best
        one of those that were: what was timed alone would win because it was."""
        share = self._costs.shares(answer.candidates)
        parts = [c for c in answer.candidates if self._costs.known(c) is not None]
        if not self._contests or self._first is None or all(share(c) == 1.0 for c in parts):
            return result
        sure = SeenCosts(lambda c: self._costs.known(c) if share(c) == 1.0 else None)
        try:
            found = search(self._graph, candidates, sure, seeds=[self._first], tolerance=EQUAL)
        except SearchError:
            return result  # Parts of the first answer were not timed with the others either.
        if found.partitioning is None:
            return result
        self._last = found.partitioning
        return replace(result, partitioning=found.partitioning)

    def remarks(self) -> tuple[str, ...]:
        """What was timed again, and what that changed; nothing where nothing was."""
        if not self._contests or self._first is None or self._last is None:
            return ()
        changed = _changed(self._first, self._last)
        before_sec, after_sec = (self._seconds(one) for one in (self._first, self._last))
        plural = "s" if self._contests > 1 else ""
        said = (
            f"{len(self._timed)} workloads that decide were timed again together, in "
            f"{self._contests} contest{plural}"
        )
        speeds = (self._costs.together.remark,) if self._costs.together.remark else ()
        if self._first.key() == self._last.key():
            return (f"{said}: the answer stands", *speeds)
        return (
            f"{said}: {changed} operators changed backend; by these times the new answer's parts "
            f"take {after_sec * 1e3:.3f} ms, the first one's {before_sec * 1e3:.3f} ms",
            *speeds,
        )

    def _contest(self, candidates: Sequence[Candidate], answer: Partitioning) -> bool:
        """Whether anything was timed together that had not been."""
        costs, share = self._costs, self._costs.shares(answer.candidates)
        parts = [c for c in answer.candidates if not c.inline and costs.known(c) is not None]
        found = [
            one
            for one in rivalries(self._graph, candidates, costs, answer, share)
            if any(share(c) < 1.0 for c in (*one.kept, *one.rival))
        ]
        fresh = parts if not self._contests else [c for c in parts if share(c) < 1.0]
        if not found and (not fresh or (not self._contests and len(parts) < 2)):
            return False
        rows = {self._row(candidate): candidate for candidate in fresh}
        fitting: list[Rivalry] = []
        for one in found:  # The most promising ones first.
            both = {self._row(candidate): candidate for candidate in (*one.kept, *one.rival)}
            if not fitting or len(rows | both) <= _ROWS:
                rows |= both
                fitting.append(one)
        exchanges = self._exchanges(fitting, rows)
        message = f"{len(rows)} workloads, {len(exchanges)} of whose differences are to be decided"
        self._progress(ProgressEvent("together", self._contests, _CONTESTS, message))
        begin = time.perf_counter()
        if not self._time(rows, fitting, self._patience(self._contests) - self._spent_sec):
            return False
        self._spent_sec += time.perf_counter() - begin
        self._timed |= rows.keys()
        self._contests += 1
        return True

    def _row(self, candidate: Candidate) -> Row:
        return self._costs.workload(candidate), candidate.target

    def _time(
        self, rows: dict[Row, Candidate], fitting: Sequence[Rivalry], patience_sec: float
    ) -> bool:
        """The first contest has some of all moments besides, small ones, which come first."""
        costs = self._costs
        witnesses = [] if self._contests else costs.together.witnesses()
        more = {row: c for c in witnesses if (row := self._row(c)) not in rows}
        asked = list(rows.values()), self._exchanges(fitting, rows)
        if not more:
            return costs.time_together(*asked, patience_sec)
        # A log of an earlier release has it without.
        if costs.time_together(*asked, 0.0):
            return True
        rows = more | rows
        asked = list(rows.values()), self._exchanges(fitting, rows)
        return costs.time_together(*asked, patience_sec)

    def _exchanges(self, fitting: Sequence[Rivalry], rows: dict[Row, Candidate]) -> list[Exchange]:
        number = {row: place for place, row in enumerate(rows)}
        exchanges = [self._exchange(one, number) for one in fitting]
        return [one for one in exchanges if one.kept and one.rival]

    def _exchange(self, rivalry: Rivalry, number: dict[Row, int]) -> Exchange:
        """What both sides take is nothing that they differ in."""
        kept, rival = (
            Counter(number[self._row(c)] for c in side) for side in (rivalry.kept, rivalry.rival)
        )
        return Exchange(tuple((kept - rival).items()), tuple((rival - kept).items()))

    def _seconds(self, partitioning: Partitioning) -> float:
        return math.fsum(map(self._costs.guess, partitioning.candidates))


def _changed(first: Partitioning, last: Partitioning) -> int:
    """Operators that are not run by whom they were."""
    before = [(c.nodes, c.backend) for c in first.candidates]
    after = [(c.nodes, c.backend) for c in last.candidates]
    return sum(
        (nodes & others).bit_count()
        for nodes, backend in before
        for others, other in after
        if backend != other
    )


def patience_sec(stats: MeasureStats, measuring: Deadline, contests: int) -> float:
    """Seconds for all contests together, as of now.

    Parameters
    ----------
    stats : MeasureStats
        Of what was measured so far.
    measuring : Deadline
        Of all measuring.
    contests : int
        How many were held.

    Returns
    -------
    float
        Of which those that were spent are to be taken.
    """
    if contests and not stats.measured:
        # All is in the log, which ends where there was no time for more: a second run measures
        # nothing, and gives the same answer.
        return 0.0
    allowed_sec = max(_LEAST_SEC, _SHARE * stats.seconds_measuring)
    return min(allowed_sec, _SHARE_OF_LEFT * measuring.left_sec())
