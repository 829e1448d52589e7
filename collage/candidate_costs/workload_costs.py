"""The bridge between search and cost: a search asks about candidates, a cost model about workloads.

The two packages do not know each other; this adapter extracts each candidate's workload (once) and
keeps the full cost of everything asked, for the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import tvm

from collage.backends.contract import BackendTarget
from collage.candidate_costs.estimates import Estimates, importance
from collage.candidate_costs.extraction import Extraction
from collage.candidate_costs.likeness import Likeness
from collage.candidate_costs.rates import Rates
from collage.candidate_costs.streamed import Question, Streamed
from collage.candidate_costs.timed_together import TimedTogether
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.contest import Exchange
from collage.cost.deadline import NEVER, Deadline
from collage.cost.measure.replay import NO_TIME
from collage.cost.models.overheads import Overheads
from collage.cost.workload.workload import Workload
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.search.strategies.lazy_search import Expect, Peek, Wanted

_FREE = Cost(CostStatus.VALID, median_sec=0.0)


class WorkloadCosts:
    """The search's ``CandidateCosts``: what a :class:`CostModel` says of candidates' workloads.

    Parameters
    ----------
    mod, graph : tvm.IRModule, DataflowGraph
        The normalized module, and its ``main``.
    model : CostModel
        Who answers.
    deadline : Deadline, optional
        After it nobody is asked any longer, nor is a question prepared.

    Attributes
    ----------
    together : TimedTogether
        What is known of candidates that were timed together.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.cost import TableCostModel
    >>> from collage.testing import graph
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(x))
    >>> costs = WorkloadCosts(mod, DataflowGraph.from_function(mod["main"]), TableCostModel({}))
    >>> costs.costs, costs.out_of_time
    ({}, False)
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        graph: DataflowGraph,
        model: CostModel,
        deadline: Deadline = NEVER,
    ) -> None:
        self._extraction = Extraction(mod, graph)
        self._model, self._deadline = model, deadline
        self._overheads = Overheads(0.0, 0.0)
        self._at_once = 1
        self._workloads: dict[Candidate, Workload] = {}
        self._rates = Rates(graph, self._extraction.likenesses.of_binding)
        self._costs: dict[Candidate, Cost] = {}
        self._estimates = Estimates()
        self._answers: dict[Question, Cost] = {}
        self.together = TimedTogether()

    @property
    def costs(self) -> dict[Candidate, Cost]:
        """Everything that was asked so far; of what was timed together with others that cost."""
        return {candidate: self._cost(candidate) for candidate in self._costs}

    @property
    def out_of_time(self) -> bool:
        """Whether something was asked that there was no time to measure."""
        return any(cost.status is CostStatus.UNKNOWN for cost in self._costs.values())

    def ask_overheads(self, native: BackendTarget) -> None:
        """Ask the cost model what the virtual machine adds to every call and every partition, and
        how many workloads keep everybody busy.

        A stand-alone measurement holds one entry into the virtual machine, a model with many
        partitions pays it once; without it, costs add up.
        """
        self._overheads = self._model.overheads(native)
        self._at_once = self._model.at_once(native)

    def stream(self, wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
        """Have costs found out for as long as a search wants any, where many devices time: whoever
        would be idle gets what the search is going to ask for as far as it knows by then.

        Parameters
        ----------
        wanted : callable
            Says what the search wants by what is known now; None when it has its answer.

        Returns
        -------
        bool
            Whether the search was told what estimates say, too. If not, nothing that it was told is
            known any longer.
        """
        before = dict(self._costs), dict(self._workloads), self._rates.saved()
        streamed = Streamed(
            wanted, self._extraction.workload, self._seconds_alone, self._expected, self._deadline
        )
        if self._at_once == 1 or (first := streamed.wanted()) is None:
            return True
        every = (*first.urgent, *first.offered)
        self._answers = streamed.answers
        self._model.stream(list(dict.fromkeys(c.target for c in every)), streamed.ask)
        # A place may have changed, and what it had timed been timed once more.
        questions = list(streamed.answers)
        costs = self._model.estimate([w for w, _ in questions], [t for _, t in questions])
        final, self._answers = dict(zip(questions, costs, strict=True)), {}
        holds = final == streamed.answers
        if not holds:
            self._costs, self._workloads, self._rates = before
        if self._deadline.is_up:
            # The search is not going to ask, and can use whatever there is.
            for question, candidates in streamed.candidates.items():
                for candidate in candidates if question in final else ():
                    if candidate not in self._costs:
                        self._learn(candidate, final[question])
        return holds

    @property
    def num_workloads(self) -> int:
        """Distinct workloads among the candidates asked about."""
        return len({workload.key for workload in self._workloads.values()})

    @property
    def num_unmeasured(self) -> int:
        """Of these those that there was no time for."""
        known = {self.workload(c).key for c in self._workloads if self.known(c) is not None}
        return self.num_workloads - len(known)

    def workload(self, candidate: Candidate) -> Workload:
        """The candidate's workload; extracted where no like candidate was before."""
        if candidate not in self._workloads:
            self._workloads[candidate] = self._extraction.workload(candidate)
        return self._workloads[candidate]

    def likeness(self, candidate: Candidate) -> Likeness:
        """Equal for candidates that are the same work on the same target; nothing is extracted."""
        return self._extraction.likenesses.of(candidate)

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """Seconds per call of each candidate, its transition included; ``inf`` when invalid, None
        when there was no time for it.

        What matters most is measured first: the dearer a workload and the more often it occurs.
        """
        missing = [c for c in dict.fromkeys(candidates) if c not in self._costs]
        measured = self._prepared([c for c in missing if not c.inline])
        self._costs.update((c, _FREE) for c in missing if c.inline)
        if measured:
            measured = self._by_importance(measured)
            questions = list(map(self._question, measured))
            costs = [self._answers[q] for q in questions if q in self._answers]
            if len(costs) < len(questions):
                costs = self._model.estimate([w for w, _ in questions], [t for _, t in questions])
            for candidate, cost in zip(measured, costs, strict=True):
                self._learn(candidate, cost)
        return [self.known(c) for c in candidates]

    def _learn(self, candidate: Candidate, cost: Cost) -> None:
        self._costs[candidate] = cost
        self.together.timed_alone(self._question(candidate), candidate, cost)
        self._rates.note(candidate, cost)
        self._estimates.note(self.workload(candidate), candidate.target, cost)

    def _prepared(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those whose workloads are known in time; the others are not measured."""
        ready = []
        for candidate in candidates:
            if candidate in self._workloads or not self._deadline.is_up:
                self.workload(candidate)
                ready.append(candidate)
            else:
                self._costs[candidate] = NO_TIME
        return ready

    def _by_importance(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        count = Counter(map(self._question, candidates))
        dearest = {place: n * importance(place[0]) for place, n in count.items()}
        return sorted(candidates, key=lambda c: -dearest[self._question(c)])

    @property
    def times_together(self) -> bool:
        """Whether candidates can be timed in the same rounds at all."""
        return self._model.times_together

    def shares(self, answer: Iterable[Candidate]) -> Callable[[Candidate], float]:
        """Of its cost what a candidate may take at the least, if it was timed at a bad moment; 1
        for one that was timed together with others.

        Parameters
        ----------
        answer : iterable of Candidate
            Parts of the best cover so far.
        """
        shares = self.together.shares(self._costs, answer)

        def of(candidate: Candidate) -> float:
            is_sure = candidate.inline or self._in_contest(candidate) is not None
            return 1.0 if is_sure else shares.get(candidate, 1.0)

        return of

    def time_together(
        self, candidates: Sequence[Candidate], exchanges: Sequence[Exchange], patience_sec: float
    ) -> bool:
        """Have candidates timed in the same rounds, which is their cost from then on.

        Parameters
        ----------
        candidates : sequence of Candidate
            Of distinct workloads whose costs are known.
        exchanges : sequence of Exchange
            Of these positions: what is to be decided.
        patience_sec : float
            After which few rounds must do.

        Returns
        -------
        bool
            Whether there was time for it.
        """
        questions = list(map(self._question, candidates))
        workloads, targets = [w for w, _ in questions], [t for _, t in questions]
        found = self._model.together(workloads, targets, exchanges, patience_sec)
        if found is None:
            return False
        if self.together.note(dict(zip(questions, found, strict=True))):
            timed = (c for c in self._costs if not c.inline)
            self._rates = self._rates.anew((c, self._levelled(c)) for c in timed)
        return True

    def _in_contest(self, candidate: Candidate) -> Cost | None:
        is_asked = candidate in self._workloads
        return self.together.cost(self._question(candidate)) if is_asked else None

    def _cost(self, candidate: Candidate) -> Cost:
        alone = self._costs[candidate]
        if not alone.is_valid or candidate.inline:
            return alone
        return self._in_contest(candidate) or self._levelled(candidate)

    def _levelled(self, candidate: Candidate) -> Cost:
        """What it takes alone, at the machine's speed of now."""
        return self.together.levelled(self._question(candidate), self._costs[candidate])

    def _question(self, candidate: Candidate) -> Question:
        return self.workload(candidate), candidate.target

    def recorded(self, candidate: Candidate) -> Cost | None:
        """What the cost model knows of a candidate without measuring anything."""
        if candidate in self._costs:
            return self._costs[candidate]
        # Not asked about, and so not one of this search's workloads.
        return self._model.recorded(self._extraction.workload(candidate), candidate.target)

    def refuse(self, candidate: Candidate, reason: str) -> None:
        """Note that a library refuses a candidate, in whatever way that was found out.

        The cost model is asked too, so that its log has the failure for a replay.

        Parameters
        ----------
        candidate : Candidate
            What is refused.
        reason : str
            The library's.
        """
        self.seconds([candidate])
        if self._costs[candidate].status is not CostStatus.BUILD_FAILED:
            self._costs[candidate] = Cost(CostStatus.BUILD_FAILED, reason=reason)

    def known(self, candidate: Candidate) -> float | None:
        """The cost if it was found out before (or is free), without measuring."""
        if candidate.inline:
            return 0.0
        cost = self._costs.get(candidate)
        if cost is None or cost.status is CostStatus.UNKNOWN:
            return None
        return self._corrected(candidate)

    def guess(self, candidate: Candidate) -> float:
        """The cost where it is known, otherwise a guess that is rather too high."""
        known_sec = self.known(candidate)
        if known_sec is not None:
            return known_sec
        self.workload(candidate)  # One of those that mattered.
        return self._expected(candidate)

    def _expected(self, candidate: Candidate) -> float:
        guessed_sec = self._estimates.seconds(
            self._extraction.workload(candidate), candidate.target
        )
        return max(self.together.level * guessed_sec, self._overheads.partition_sec)

    def lower_bound(self, candidate: Candidate) -> float:
        """Its multiply-adds at the best rate that anything reached so far, with a margin.

        Falls as faster candidates become known, and is at least what the VM takes to call it.
        """
        if candidate.inline:
            return 0.0
        bound_sec = self._overheads.partition_sec
        return max(bound_sec, self.together.level * self._rates.least_sec(candidate))

    def likely_bound(self, candidate: Candidate) -> float:
        """What it takes if it is not much faster for its size than its kind is on its target."""
        bound_sec = self.lower_bound(candidate)
        if candidate.inline:
            return bound_sec
        return max(bound_sec, self.together.level * self._rates.likely_sec(candidate))

    @property
    def assumed_flops_per_sec(self) -> float | None:
        """The rate that no candidate is held to exceed; None where nothing was measured."""
        return self._rates.assumed_flops_per_sec or None

    def _corrected(self, candidate: Candidate) -> float:
        if candidate.inline:
            return 0.0
        if not self._costs[candidate].is_valid or self._in_contest(candidate) is None:
            return self._seconds_alone(self._levelled(candidate))
        return self._seconds_of(self._cost(candidate))

    def _seconds_alone(self, cost: Cost) -> float:
        """Of what was timed alone, at the level of what was timed together."""
        return self._seconds_of(cost) * self.together.level

    def _seconds_of(self, cost: Cost) -> float:
        return max(cost.median_sec - self._overheads.call_sec, self._overheads.partition_sec)
