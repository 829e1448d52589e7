"""The answer in hand: one partitioning that is compiled and known to run, early on.

Whatever happens to the search after that, it is there to be returned.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from typing import Self

from collage.cost.base import CostStatus
from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender, EndToEndComparison, Evaluation
from collage.pipeline.limits.budget import Budget

_POLL_SEC = 0.1


class AnswerInHand:
    """Tries out partitionings until one runs; use as a context manager, which ends that.

    Parameters
    ----------
    comparison : EndToEndComparison
        Compiles and checks.
    budget : Budget
        Told what that takes.
    progress : callable, optional
        Informed when there is an answer.

    Examples
    --------
    >>> from collage.end_to_end import baselines
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> with AnswerInHand(search.comparison, Budget(10.0)) as hand:
    ...     hand.find(baselines(search.graph, search.targets))
    ...     hand.answer().contender.name
    'single:tvm'
    """

    def __init__(
        self,
        comparison: EndToEndComparison,
        budget: Budget,
        progress: ProgressCallback = ignore,
    ) -> None:
        self._comparison = comparison
        self._budget = budget
        self._progress = progress
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collage-answer")
        self._found: Future[Evaluation | None] | None = None
        self._tried: list[Evaluation] = []
        self._failed: list[Evaluation] = []
        self._closed = False
        self._closing = Deadline(lambda: -math.inf if self._closed else math.inf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._pool.shutdown(cancel_futures=True)

    def find(self, contenders: Sequence[Contender], at_once: int = 1) -> None:
        """Begin to try them out in this order, unless that was begun before.

        Parameters
        ----------
        contenders : sequence of Contender
            The most promising first.
        at_once : int
            So many of them are tried together at first, and the fastest is the answer.
        """
        if self._found is None:
            self._found = self._pool.submit(self._first_that_runs, list(contenders), at_once)

    def widen(self, contenders: Sequence[Contender], deadline: Deadline = NEVER) -> None:
        """Try out others beside the answer, once there is one; the fastest is the answer then.

        Parameters
        ----------
        contenders : sequence of Contender
            Those that were tried already are left out.
        deadline : Deadline, optional
            When the answer that there is will do.
        """
        if self._found is not None and contenders:
            deadline = self._closing.or_earlier(deadline)
            self._found = self._pool.submit(
                self._fastest_of, self._found, list(contenders), deadline
            )

    def answer(self) -> Evaluation | None:
        """The one that runs, waited for; None when none does, or nobody asked for one."""
        while self._found is not None:
            # Not for good at once: a second Ctrl-C is to get through.
            with contextlib.suppress(TimeoutError):
                return self._found.result(_POLL_SEC)
        return None

    @property
    def tried(self) -> tuple[Evaluation, ...]:
        """Those that were tried together with the answer and run, the answer included; of an answer
        that was waited for."""
        return tuple(self._tried)

    def _first_that_runs(self, contenders: Sequence[Contender], at_once: int) -> Evaluation | None:
        self._tried, self._failed = _try_together(
            self._comparison, contenders[:at_once], self._budget, self._closing
        )
        if not self._tried:
            known = [one.contender for one in self._failed]
            others = [one for one in contenders if one not in known]
            found, failed = first_that_runs(self._comparison, others, self._budget, self._closing)
            self._tried = [] if found is None else [found]
            self._failed += failed
        return self._fastest() if self._tried else None

    def _fastest_of(
        self,
        before: Future[Evaluation | None],
        contenders: Sequence[Contender],
        deadline: Deadline,
    ) -> Evaluation | None:
        first = before.result()  # Which is there: there is one thread for both.
        known = {one.contender.partitioning.key() for one in (*self._tried, *self._failed)}
        fresh = [one for one in contenders if one.partitioning.key() not in known]
        if first is None or not fresh:
            return first
        # Times of other moments do not compare. These are compiled already.
        playing = [*(one.contender for one in self._tried), *fresh]
        found, failed = _try_together(self._comparison, playing, self._budget, deadline)
        self._failed += failed
        if not found:
            return first
        self._tried = found
        return self._fastest()

    def _fastest(self) -> Evaluation:
        fastest = min(self._tried, key=lambda one: one.cost.median_sec)
        self._progress(ProgressEvent("answer", 1, 1, fastest.contender.name))
        return fastest


def _try_together(
    comparison: EndToEndComparison,
    contenders: Sequence[Contender],
    budget: Budget,
    deadline: Deadline = NEVER,
) -> tuple[list[Evaluation], list[Evaluation]]:
    """Those that run, and those that do not; of others there was no time to find out.

    One that runs is waited for, within the budget or not.
    """
    if deadline.is_up or not contenders:
        return [], []
    evaluations, seen = comparison.try_out(contenders, deadline, budget.enough)
    found = [evaluation for evaluation in evaluations if evaluation.cost.is_valid]
    if found:
        budget.saw(seen)
    failed = [
        evaluation
        for evaluation in evaluations
        if not evaluation.cost.is_valid and evaluation.cost.status is not CostStatus.UNKNOWN
    ]
    return found, failed


def first_that_runs(
    comparison: EndToEndComparison,
    contenders: Sequence[Contender],
    budget: Budget,
    deadline: Deadline = NEVER,
) -> tuple[Evaluation | None, list[Evaluation]]:
    """The first that runs, within the budget or not, and those before it, which do not.

    Parameters
    ----------
    comparison : EndToEndComparison
        Compiles and checks.
    contenders : sequence of Contender
        The most promising first.
    budget : Budget
        Told what that takes.
    deadline : Deadline, optional
        When nobody wants it any longer.

    Returns
    -------
    tuple of (Evaluation or None, list of Evaluation)
        None where none runs, or nobody wants one any longer; the others with their reasons.
    """
    failed: list[Evaluation] = []
    for contender in contenders:
        found, refused = _try_together(comparison, [contender], budget, deadline)
        failed += refused
        if found:
            return found[0], failed
    return None, failed
