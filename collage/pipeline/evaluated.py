"""The last comparison: covers against each other, end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collage.backends.contract.errors import ReplayMissError
from collage.candidate_costs import WorkloadCosts
from collage.cost.contest import PairedComparison
from collage.end_to_end import Contender, EndToEndComparison, Evaluation, decide
from collage.pipeline.limits import AnswerInHand, Budget
from collage.pipeline.limits.answer_in_hand import first_that_runs

_PROMISING_RATIO = 4.0
"""With little time, whoever is guessed to be so much slower than the most promising is left out.
Beside other programs a library whose threads wait awake takes many times what it is guessed to."""

_BEATEN_RATIO = 1.3
"""Whoever was tried out beside the answer in hand and took so much longer is not timed again."""


@dataclass(frozen=True)
class Evaluated:
    """How the contenders did, and which of them won.

    Attributes
    ----------
    evaluations : tuple of Evaluation
        In the order of the contenders.
    winner : Evaluation
        One of them: the fastest, or among equals the simplest.
    comparisons : tuple of PairedComparison or None
        How each stands against it, see :class:`collage.end_to_end.Verdict`.

    Examples
    --------
    >>> import tvm
    >>> from collage.cost import Cost, CostStatus
    >>> from collage.search.partitioning import Partitioning
    >>> contender = Contender("greedy", Partitioning(()))
    >>> one = Evaluation(contender, tvm.IRModule(), "2d71", Cost(CostStatus.VALID, 1e-3))
    >>> Evaluated.of([one]).winner.contender.name
    'greedy'
    """

    evaluations: tuple[Evaluation, ...]
    winner: Evaluation
    comparisons: tuple[PairedComparison | None, ...]

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> Evaluated:
        """What follows from how the contenders did.

        Raises
        ------
        MeasurementError
            When none runs correctly.
        """
        verdict = decide(evaluations)
        return cls(tuple(evaluations), verdict.winner, verdict.comparisons)


def evaluate_contenders(
    comparison: EndToEndComparison, contenders: Sequence[Contender]
) -> Evaluated:
    """Compare contenders end to end.

    Parameters
    ----------
    comparison : EndToEndComparison
        Measured or estimated.
    contenders : sequence of Contender
        At least one.

    Returns
    -------
    Evaluated
        The winner, and how each did, in the order of the contenders.

    Raises
    ------
    MeasurementError
        When none runs correctly.

    Examples
    --------
    >>> from collage.end_to_end import baselines
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> seeds = baselines(search.graph, search.targets)
    >>> evaluate_contenders(search.comparison, seeds).winner.contender.name
    'single:onednn'
    """
    evaluations = comparison.compare(contenders)
    return Evaluated.of(evaluations)


def evaluate_replayed(comparison: EndToEndComparison, contenders: Sequence[Contender]) -> Evaluated:
    """Compare contenders by a log, whose search may have had fewer covers than this one.

    Parameters
    ----------
    comparison : EndToEndComparison
        Of a strict replay.
    contenders : sequence of Contender
        At least one.

    Returns
    -------
    Evaluated
        Of as many of the search's further covers as the log has a contest of.

    Raises
    ------
    MeasurementError
        When none runs correctly.
    ReplayMissError
        When the log lacks one that is no further cover.

    Examples
    --------
    >>> from collage.end_to_end import baselines
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> seeds = baselines(search.graph, search.targets)
    >>> evaluate_replayed(search.comparison, seeds).winner.contender.name
    'single:onednn'
    """
    playing = list(contenders)
    while any(one.is_further for one in playing):
        try:
            return evaluate_contenders(comparison, playing)
        except ReplayMissError:
            playing.remove([one for one in playing if one.is_further][-1])
    return evaluate_contenders(comparison, playing)


def evaluate_in_time(
    comparison: EndToEndComparison,
    contenders: Sequence[Contender],
    costs: WorkloadCosts,
    budget: Budget,
    hand: AnswerInHand,
) -> Evaluated:
    """Compare as many contenders as there is time for; there is always a winner.

    Parameters
    ----------
    comparison : EndToEndComparison
        Keeps to the budget's deadlines.
    contenders : sequence of Contender
        The search's answer first, if there is one.
    costs : WorkloadCosts
        Say which of the others are promising.
    budget : Budget
        Says how many there is time for.
    hand : AnswerInHand
        Takes part, and wins where nobody else can be timed.

    Returns
    -------
    Evaluated
        The winner, and how each did; those that there was no time for have an unknown cost.

    Raises
    ------
    MeasurementError
        When none runs correctly, whatever time it takes.

    Examples
    --------
    Nothing takes any time where costs are estimated, so all take part:

    >>> from collage.end_to_end import baselines
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> comparison = search.comparison
    >>> contenders, budget = baselines(search.graph, search.targets), Budget(10.0)
    >>> with AnswerInHand(comparison, budget) as hand:
    ...     hand.find(contenders)
    ...     evaluated = evaluate_in_time(comparison, contenders, search.costs, budget, hand)
    >>> [evaluation.cost.is_valid for evaluation in evaluated.evaluations]
    [True, True]
    """
    first = hand.answer()
    held = None if first is None else first.contender
    tried = {one.contender.partitioning.key(): one for one in hand.tried}
    # Sums that are a little higher promise more than baselines, which have to be beaten first.
    ranked = sorted(by_promise(contenders, costs), key=lambda one: one.is_further)
    distinct: dict[object, Contender] = {} if held is None else {held.partitioning.key(): held}
    for contender in [*(c for c in contenders if c.name == "search"), *ranked]:
        distinct.setdefault(contender.partitioning.key(), contender)
    others = [contender for contender in distinct.values() if contender is not held]
    if budget.is_limited:
        best = min(distinct.values(), key=_promise(costs))
        others = [c for c in others if is_promising(c, best, costs)]
    if first is not None:
        beaten_sec = _BEATEN_RATIO * first.cost.median_sec
        beaten = {key for key, one in tried.items() if one.cost.median_sec > beaten_sec}
        others = [c for c in others if c.partitioning.key() not in beaten]
    compiled = [c for c in others if c.partitioning.key() in tried]
    others = [c for c in others if c.partitioning.key() not in tried]
    fitting = [*compiled, *others[: budget.contenders_that_fit(len(others))]]
    budget.begin_contest()
    taking_part = {c.partitioning.key() for c in [*fitting, *([] if held is None else [held])]}
    chosen = [c for c in contenders if c.partitioning.key() in taking_part]
    timed = {}
    late = budget.timing.is_up and first is not None
    if fitting or (len(tried) < 2 and not late):
        timed = dict(zip(chosen, comparison.compare(chosen), strict=True))
    # Who was beaten before does not play against those that played again.
    again = any(one.cost.is_valid and one.rounds is not None for one in timed.values())
    for contender in contenders:
        known = tried.get(contender.partitioning.key())
        if known is not None and contender not in timed:
            rounds = None if again else known.rounds
            timed[contender] = replace(known, contender=contender, rounds=rounds)
    if budget.is_limited and not any(one.cost.is_valid for one in timed.values()):
        last, failed = first_that_runs(comparison, list(distinct.values()), budget)
        if last is not None:
            timed[last.contender] = last
        else:
            # Their reasons are what the user has to know, not that there was no time.
            reasons = {one.contender.partitioning.key(): one for one in failed}
            for contender in contenders:
                if one := reasons.get(contender.partitioning.key()):
                    timed[contender] = replace(one, contender=contender)
    evaluations = [timed.get(c) or Evaluation.without_time(c) for c in contenders]
    return Evaluated.of(evaluations)


def by_promise(contenders: Sequence[Contender], costs: WorkloadCosts) -> list[Contender]:
    """The most promising first, by what is known of their parts' costs and guessed of the rest.

    Parameters
    ----------
    contenders : sequence of Contender
        In whatever order.
    costs : WorkloadCosts
        Nothing is measured for this.

    Returns
    -------
    list of Contender
        The same ones.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import relax
    >>> from tvm.relax import op
    >>> from collage.candidate_costs import WorkloadCosts
    >>> from collage.cost import TableCostModel
    >>> from collage.end_to_end import baselines
    >>> from collage.search import DataflowGraph
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> weights = relax.const(np.ones((512, 512), "float32"))
    >>> mod = graph([(256, 512)], lambda emit, x: op.matmul(x, weights))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> costs = WorkloadCosts(mod, dataflow, TableCostModel({}))
    >>> seeds = baselines(dataflow, resolve_targets(["llvm", "onednn"]))
    >>> [seed.name for seed in by_promise(seeds, costs)]
    ['single:onednn', 'single:tvm']
    """
    return sorted(contenders, key=_promise(costs))


def is_promising(contender: Contender, best: Contender, costs: WorkloadCosts) -> bool:
    """Whether one is not far behind another, by what is known and guessed of them.

    Parameters
    ----------
    contender, best : Contender
        Of the same model.
    costs : WorkloadCosts
        Nothing is measured for this.

    Returns
    -------
    bool
        True where it might turn out to be the faster one.
    """
    promise = _promise(costs)
    return promise(contender) <= _PROMISING_RATIO * promise(best)


def _promise(costs: WorkloadCosts) -> Callable[[Contender], float]:
    return lambda contender: sum(map(costs.guess, contender.partitioning.candidates))
