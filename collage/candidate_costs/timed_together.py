"""What is known of candidates that were timed in the same rounds, beside times of other moments.

Times of one contest compare with each other. With those that were taken alone, at other moments,
they do through what became of all who were timed both ways: how much longer they took in the middle
(the level), and the luckiest of them (the share that a time alone may be wrong by).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from collage.backends.contract import BackendTarget
from collage.cost.base import Cost, CostStatus
from collage.cost.workload.workload import Workload
from collage.search.candidates import Candidate

Question = tuple[Workload, BackendTarget]
"""What it costs to run a workload on a target."""

_SHARE = 0.9
"""Of its time alone that a candidate may take, as long as nobody knows how far times are off."""

_LEAST_SHARE = 0.3
"""However far times are off: on such a machine nearly everything would have to be timed again."""

_MOST_OTHERS = 0.9
_FEWEST = 5
"""Times of both kinds from which their spread can be told."""

_LUCKY = 10
"""In percent: who took less of its time alone than all but so many is not reckoned with."""


class TimedTogether:
    """Costs of those that were timed together, all as if they had been in the first contest.

    Attributes
    ----------
    level : float
        What times alone are to be multiplied by.

    Examples
    --------
    >>> from collage.backends.contract import BackendTarget
    >>> from collage.testing import graph
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> relu = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> question = relu, BackendTarget.of("tvm", Target("llvm"))
    >>> known = TimedTogether()
    >>> known.note({question: Cost.of_samples([2e-6] * 6)}, lambda question: 1e-6)
    >>> known.level, known.cost(question).median_sec
    (2.0, 2e-06)
    """

    def __init__(self) -> None:
        self.level = 1.0
        self._costs: dict[Question, Cost] = {}
        self._alone: dict[Question, float] = {}

    def __bool__(self) -> bool:
        return bool(self._costs)

    def note(self, costs: Mapping[Question, Cost], alone: Callable[[Question], float]) -> None:
        """Take note of a contest.

        Parameters
        ----------
        costs : mapping of (Workload, BackendTarget) to Cost
            Unknown ones say nothing.
        alone : callable
            Seconds of a question that was timed alone.
        """
        known = {q: cost for q, cost in costs.items() if cost.status is not CostStatus.UNKNOWN}
        both = [q for q in known if q in self._costs and known[q].is_valid]
        ratios = [self._costs[q].median_sec / known[q].median_sec for q in both]
        scale = statistics.median(ratios) if ratios else 1.0
        for question, cost in known.items():
            if not cost.is_valid:
                self._costs[question] = cost
                continue
            before = self._costs.get(question)
            samples = [scale * sec for sec in cost.samples_sec]
            if before is not None and before.is_valid:
                samples = [*before.samples_sec, *samples]
            self._costs[question] = Cost.of_samples(samples)
            self._alone[question] = alone(question)
        if self._alone:
            self.level = statistics.median(self._ratios())

    def cost(self, question: Question) -> Cost | None:
        """Of one that was timed together with others; None of any other."""
        return self._costs.get(question)

    def shares(
        self, alone: Mapping[Candidate, Cost], answer: Iterable[Candidate]
    ) -> dict[Candidate, float]:
        """Of its time alone, at the level of the others, what a candidate may take at the least.

        How far times are off is told by what became of those that were timed both ways. As long as
        these are few, how far the samples of most lie apart says it. Whoever was timed beside more
        of other programs than the answer was may have been slowed down by them.

        Parameters
        ----------
        alone : mapping of Candidate to Cost
            All that was timed alone.
        answer : iterable of Candidate
            Parts of the best cover so far.

        Returns
        -------
        dict of Candidate to float
            Below 1.
        """
        valid = {candidate: cost for candidate, cost in alone.items() if cost.samples_sec}
        ratios = self._ratios()
        if len(ratios) >= _FEWEST:
            lucky = float(np.percentile(ratios, _LUCKY)) / self.level
        else:
            apart = [min(cost.samples_sec) / cost.median_sec for cost in valid.values()]
            lucky = float(np.percentile(apart, _LUCKY)) if apart else _SHARE
        had = [_left_over(valid[part]) for part in answer if part in valid]
        usual = statistics.median(had) if had else 1.0
        return {
            candidate: max(min(lucky, _SHARE) * min(1.0, _left_over(cost) / usual), _LEAST_SHARE)
            for candidate, cost in valid.items()
        }

    def _ratios(self) -> list[float]:
        """Times together over times alone, of all that have both."""
        return [
            self._costs[question].median_sec / alone_sec
            for question, alone_sec in self._alone.items()
            if self._costs[question].is_valid
        ] or [1.0]


def _left_over(cost: Cost) -> float:
    """Of its speed, roughly, what other programs left a candidate: threads wait for each other, so
    it loses more than they take."""
    return (1.0 - min(cost.others, _MOST_OTHERS)) ** 2
