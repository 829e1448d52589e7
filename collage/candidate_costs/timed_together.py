"""What is known of candidates that were timed in the same rounds, beside times of other moments.

Times of one contest compare with each other. With those that were taken alone, at other moments,
they do through what became of all who were timed both ways: how much longer they took in the middle
(the level), and the luckiest of them (the share that a time alone may be wrong by). Where the
machine had another speed at first, some of all moments tell.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

import numpy as np

from collage.backends.contract import BackendTarget
from collage.candidate_costs.speeds import Stretch, stretches
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

_WITNESSES = ((0.25, 12), (1.0, 4))
"""Of the moments at which candidates were timed, by the share of all that came until then: most of
them of the first ones, for what is of later moments plays anyway."""

_ENOUGH = 64
"""Timed alone: fewer are timed in so short a time that a machine's speed hardly changes."""

_WITNESS_SEC = (1e-4, 1e-2)
"""What a witness takes: a longer time depends on patience, a shorter one, whoever's, on caches,"""

_WITNESS_BYTES = 3 << 20
"""and what it reads and writes, at the most: it is loaded and packed once more."""


class TimedTogether:
    """Costs of those that were timed together, all as if they had been in the first contest.

    Attributes
    ----------
    stretches : tuple of Stretch
        Of the order in which candidates were timed alone.

    Examples
    --------
    >>> from collage.backends.contract import BackendTarget
    >>> from collage.testing import graph
    >>> from tvm import relax
    >>> from tvm.target import Target
    >>> relu = Workload.from_module(graph([(8, 8)], lambda _, x: relax.op.nn.relu(x)))
    >>> question = relu, BackendTarget.of("tvm", Target("llvm"))
    >>> known = TimedTogether()
    >>> known.timed_alone(question, Candidate(0b1, question[1]), Cost.of_samples([1e-6] * 6))
    >>> known.note({question: Cost.of_samples([2e-6] * 6)})
    False
    >>> known.level, known.cost(question).median_sec
    (2.0, 2e-06)
    """

    def __init__(self) -> None:
        self.stretches: tuple[Stretch, ...] = (Stretch(1.0),)
        self._costs: dict[Question, Cost] = {}
        self._alone: dict[Question, Cost] = {}
        self._order: dict[Question, int] = {}
        self._candidates: list[Candidate] = []
        self._witnesses: list[Question] = []
        self._is_witnessed = False

    def __bool__(self) -> bool:
        return bool(self._costs)

    @property
    def level(self) -> float:
        """What times alone are to be multiplied by that are taken from now on."""
        return self.stretches[-1].level

    def timed_alone(self, question: Question, candidate: Candidate, cost: Cost) -> None:
        """Take note of what was timed alone, in the order in which it was.

        Parameters
        ----------
        question : (Workload, BackendTarget)
            What was timed; the first time counts.
        candidate : Candidate
            On whose behalf.
        cost : Cost
            What it took.
        """
        if cost.is_valid and question not in self._order:
            self._order[question] = len(self._order)
            self._candidates.append(candidate)
            self._alone[question] = cost

    def witnesses(self) -> list[Candidate]:
        """Some of all moments that tell how fast the machine was, in the order of these."""
        if len(self._alone) < _ENOUGH:
            return []
        self._witnesses = self._chosen()
        return [self._candidates[self._order[question]] for question in self._witnesses]

    def _chosen(self) -> list[Question]:
        every, found, begin = list(self._alone), list[Question](), 0
        for share, number in _WITNESSES:
            end = int(share * len(every))
            fitting = [question for question in every[begin:end] if self._fits(question)]
            for part in np.array_split(np.arange(len(fitting)), number):
                some = [fitting[place] for place in part]
                found += sorted(some, key=lambda q: _apart(self._alone[q]))[:1]
            begin = end
        return found

    def _fits(self, question: Question) -> bool:
        least_sec, most_sec = _WITNESS_SEC
        is_of_length = least_sec <= self._alone[question].median_sec <= most_sec
        return is_of_length and question[0].bytes <= _WITNESS_BYTES

    @property
    def remark(self) -> str:
        """What is to be said of speeds; nothing, where they did not differ."""
        if len(self.stretches) == 1:
            return ""
        shares = ", ".join(f"{one.level / self.level:.2f}" for one in self.stretches)
        return f"the machine's speed changed meanwhile: times count with {shares} of themselves"

    def note(self, costs: Mapping[Question, Cost]) -> bool:
        """Take note of a contest of what was timed alone before.

        Parameters
        ----------
        costs : mapping of (Workload, BackendTarget) to Cost
            Unknown ones say nothing. Where all witnesses are among them, speeds are told.

        Returns
        -------
        bool
            Whether what was taken for a time alone at the level of now is another one.
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
        if self._witnesses and costs.keys() >= set(self._witnesses):
            self._is_witnessed = True
        points = [(self._order[q], ratio) for q, ratio in self._ratios().items()]
        long = [
            (self._order[q], ratio)
            for q, ratio in self._ratios().items()
            if self._alone[q].median_sec >= _WITNESS_SEC[0]
        ]
        told = stretches(long) if self._is_witnessed and long else ()
        if len(told) <= 1 and points:
            told = (Stretch(statistics.median(ratio for _, ratio in points)),)
        earlier, self.stretches = self.stretches, told or self.stretches
        return max(len(earlier), len(self.stretches)) > 1

    def levelled(self, question: Question, alone: Cost) -> Cost:
        """A time alone as if it had been taken now.

        Parameters
        ----------
        question : (Workload, BackendTarget)
            Of what.
        alone : Cost
            What it took.

        Returns
        -------
        Cost
            The same where the machine's speed did not change.
        """
        factor = self._factor(question)
        return alone if factor == 1.0 else alone.times(factor)

    def _factor(self, question: Question) -> float:
        place = self._order.get(question)
        if place is None or len(self.stretches) == 1:
            return 1.0
        return next(one.level for one in self.stretches if place < one.end) / self.level

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
        ratios = [ratio / self._factor(q) for q, ratio in self._ratios().items()]
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

    def _ratios(self) -> dict[Question, float]:
        """Times together over times alone, of all that have both."""
        return {
            question: cost.median_sec / self._alone[question].median_sec
            for question, cost in self._costs.items()
            if cost.is_valid and question in self._alone
        }


def _apart(cost: Cost) -> float:
    return cost.spread_sec / cost.median_sec


def _left_over(cost: Cost) -> float:
    """Of its speed, roughly, what other programs left a candidate: threads wait for each other, so
    it loses more than they take."""
    return (1.0 - min(cost.others, _MOST_OTHERS)) ** 2
