"""How fast candidates have been, and what others take by it: at the least, and most likely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import copy
from statistics import median

from collage.backends.contract import BackendTarget
from collage.candidate_costs.additive import AdditiveTimes
from collage.candidate_costs.work import GraphWork, Work
from collage.cost.base import Cost
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph

_PEAK_MARGIN = 1.25
"""A candidate may be faster per operation than all before it, but by no more than this: the
device's peak is near what whole networks reach. By more, and the search would be inexact."""

_ENOUGH = 8
"""Workloads of one kind on one target that tell what others of the kind take."""

_LUCK = 0.9
"""By so much of what is typical of its kind one that was not measured may be faster for its size,
and still is not looked for."""


class _Kind:
    """Work of one kind on one target, and how long it took.

    A roofline, but of what was seen: each work takes so many times as long as it would at the best
    rates of computing and of moving bytes that any of them reached. A lucky moment moves the roof,
    and with it all these ratios, but hardly what the typical one says of others.
    """

    def __init__(self) -> None:
        self._seconds: dict[Work, float] = {}
        self._typical: float | None = None

    def copied(self) -> _Kind:
        same = _Kind()
        same._seconds = dict(self._seconds)
        return same

    def note(self, work: Work, seconds: float) -> None:
        self._seconds[work] = min(seconds, self._seconds.get(work, seconds))
        self._typical = None

    def likely_sec(self, work: Work) -> float:
        if len(self._seconds) < _ENOUGH:
            return 0.0
        if self._typical is None:
            self._flops_per_sec = max(w.flops / sec for w, sec in self._seconds.items())
            self._bytes_per_sec = max(w.bytes / sec for w, sec in self._seconds.items())
            ratios = [s / self._roof_sec(w) for w, s in self._seconds.items() if self._roof_sec(w)]
            self._typical = median(ratios) if ratios else 0.0
        return _LUCK * self._typical * self._roof_sec(work)

    def _roof_sec(self, work: Work) -> float:
        # Where none of them computed, or moved anything, they say nothing of what does.
        computing_sec = work.flops / self._flops_per_sec if self._flops_per_sec else 0.0
        return max(computing_sec, work.bytes / self._bytes_per_sec if self._bytes_per_sec else 0.0)


class Rates:
    """The best rates of all candidates whose costs are known.

    Parameters
    ----------
    graph : DataflowGraph
        What candidates are of.
    alike : callable
        The same value for bindings that compute the same, by index.

    Attributes
    ----------
    best_flops_per_sec : float
        By the fewest multiply-adds that do; 0 where nothing was measured.
    """

    def __init__(self, graph: DataflowGraph, alike: Callable[[int], Hashable]) -> None:
        self._graph, self._alike = graph, alike
        self._work = GraphWork(graph)
        self._sums = AdditiveTimes(graph, self._work, alike)
        self._kinds: defaultdict[tuple[BackendTarget, str], _Kind] = defaultdict(_Kind)
        self.best_flops_per_sec = 0.0

    def saved(self) -> Rates:
        """What is known now, whatever is learned later."""
        same = copy(self)
        same._kinds = defaultdict(_Kind, {key: kind.copied() for key, kind in self._kinds.items()})
        same._sums = self._sums.copied()
        return same

    def anew(self, costs: Iterable[tuple[Candidate, Cost]]) -> Rates:
        """What is known by these costs alone.

        Parameters
        ----------
        costs : iterable of (Candidate, Cost)
            In the order in which they became known.
        """
        same = Rates(self._graph, self._alike)
        for candidate, cost in costs:
            same.note(candidate, cost)
        return same

    @property
    def assumed_flops_per_sec(self) -> float:
        """The rate that no candidate is held to exceed; 0 where nothing was measured."""
        return _PEAK_MARGIN * self.best_flops_per_sec

    def note(self, candidate: Candidate, cost: Cost) -> None:
        """Learn from a candidate's cost.

        Parameters
        ----------
        candidate : Candidate
            What was measured.
        cost : Cost
            Ignored where it has no samples.
        """
        if cost.is_valid and cost.samples_sec:
            work, least_sec = self._work.of(candidate.nodes), min(cost.samples_sec)
            self.best_flops_per_sec = max(self.best_flops_per_sec, work.fewest_flops / least_sec)
            self._kinds[candidate.target, work.kind].note(work, least_sec)
            self._sums.note(candidate.target, candidate.nodes, cost.median_sec)

    def least_sec(self, candidate: Candidate) -> float:
        """Its fewest multiply-adds at the assumed rate; 0 where that is not known."""
        if not self.best_flops_per_sec:
            return 0.0
        return self._work.of(candidate.nodes).fewest_flops / self.assumed_flops_per_sec

    def likely_sec(self, candidate: Candidate) -> float:
        """What it hardly takes less than, by what its operators took in others on its target, or by
        what others of its kind took; 0 where too few of either are known."""
        least_sec = self._sums.least_sec(candidate.target, candidate.nodes)
        if least_sec is not None:
            return least_sec
        work = self._work.of(candidate.nodes)
        return self._kinds[candidate.target, work.kind].likely_sec(work)
