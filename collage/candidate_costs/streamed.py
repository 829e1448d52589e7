"""What a search wants, as questions to a cost model that many devices answer at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from collage.backends.contract import BackendTarget
from collage.candidate_costs.estimates import importance
from collage.cost.base import Answer, Asked, Cost
from collage.cost.deadline import NEVER, Deadline
from collage.cost.workload.workload import Workload
from collage.search.candidates import Candidate
from collage.search.strategies.lazy_search import Expect, Peek, Wanted

Question = tuple[Workload, BackendTarget]
"""What it costs to run a workload on a target."""


class Streamed:
    """Asks about each workload once, however many candidates it stands for.

    Parameters
    ----------
    wanted : callable
        Says what the search wants by what is known now; None when it has its answer.
    workload_of : callable
        A candidate's workload.
    seconds_of : callable
        What the search is to take a known cost for.
    expect : callable
        About what a candidate takes that nothing is known of.
    deadline : Deadline, optional
        After it no question is prepared.

    Attributes
    ----------
    answers : dict of (Workload, BackendTarget) to Cost
        What became known.
    candidates : dict of (Workload, BackendTarget) to list of Candidate
        On whose behalf what was asked about.

    Examples
    --------
    Two candidates of one workload are asked about, and the search has its answer then:

    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> relu = Workload.from_module(graph([(8,)], lambda _, x: op.nn.relu(x)))
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> first, second = Candidate(0b01, tvm), Candidate(0b10, tvm)
    >>> def wanted(peek, expect):
    ...     return Wanted((first, second), ()) if peek(second) is None else None
    >>> streamed = Streamed(wanted, lambda candidate: relu, lambda cost: cost.median_sec, len)
    >>> [workload.describe() for workload, target in streamed.ask([], 4).urgent]
    ['relu 8']
    >>> print(streamed.ask([Answer(relu, tvm, Cost.of_samples([1e-6]))], 4))
    None
    >>> streamed.peek(first), len(streamed.candidates[relu, tvm])
    (1e-06, 2)
    """

    def __init__(
        self,
        wanted: Callable[[Peek, Expect], Wanted | None],
        workload_of: Callable[[Candidate], Workload],
        seconds_of: Callable[[Cost], float],
        expect: Expect,
        deadline: Deadline = NEVER,
    ) -> None:
        self._wanted, self._workload_of, self._seconds_of = wanted, workload_of, seconds_of
        self._expect, self._deadline = expect, deadline
        self.answers: dict[Question, Cost] = {}
        self.candidates: dict[Question, list[Candidate]] = {}

    def wanted(self) -> Wanted | None:
        """What the search wants by what is known; None once it has its answer."""
        return self._wanted(self.peek, self._expect)

    def ask(self, answers: Sequence[Answer], room: int) -> Asked | None:
        """What is to be found out next; see :data:`collage.cost.base.Asking`.

        Parameters
        ----------
        answers : sequence of Answer
            What became known.
        room : int
            How many workloads more there may be, unless they are urgent.

        Returns
        -------
        Asked or None
            None once the search has its answer.
        """
        for answer in answers:
            self.answers[answer.workload, answer.target] = answer.cost
        wanted = self.wanted()
        if wanted is None:
            return None
        fresh: dict[Question, None] = {}
        urgent = Counter(self._open(c, fresh) for c in self._in_time(wanted.urgent))
        for candidate in self._in_time(wanted.offered):
            question = self._question(candidate)
            if question in self.answers:
                continue
            if question not in self.candidates and len(fresh) >= room:
                break
            self._open(candidate, fresh)
        # The dearer a workload and the more often it occurs, the earlier.
        dearest = sorted(urgent, key=lambda q: -urgent[q] * importance(q[0]))
        return Asked(dearest, [question for question in fresh if question not in urgent])

    def peek(self, candidate: Candidate) -> float | None:
        """What the search would be told of a candidate; None where it would have to wait.

        Parameters
        ----------
        candidate : Candidate
            What it might ask about.
        """
        if self._deadline.is_up:
            return None
        cost = self.answers.get(self._question(candidate))
        return None if cost is None else self._seconds_of(cost)

    def _question(self, candidate: Candidate) -> Question:
        return self._workload_of(candidate), candidate.target

    def _in_time(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        return takewhile(lambda _: not self._deadline.is_up, candidates)

    def _open(self, candidate: Candidate, fresh: dict[Question, None]) -> Question:
        """The question that stands for a candidate."""
        question = self._question(candidate)
        if question not in self.candidates:
            fresh[question] = None
        same = self.candidates.setdefault(question, [])
        if candidate not in same:
            same.append(candidate)
        return question
