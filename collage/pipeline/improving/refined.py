"""Changes to the best partitioning, tried on end-to-end time."""

from __future__ import annotations

from collections.abc import Callable

from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender, EndToEndComparison
from collage.pipeline.covers import Covers
from collage.pipeline.evaluated import Evaluated
from collage.pipeline.limits import Budget
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.strategies import refine


def refine_winner(
    comparison: EndToEndComparison,
    graph: DataflowGraph,
    covers: Covers,
    evaluated: Evaluated,
    *,
    trials: int,
    budget: Budget | None = None,
    storage: str | None = None,
    seed: int = 0,
    fits: Callable[[Contender], bool] = lambda contender: True,
    progress: ProgressCallback = ignore,
) -> Evaluated:
    """Try changes to the winner on end-to-end time, and compare what they led to with the others.

    Parameters
    ----------
    comparison : EndToEndComparison
        Times each trial against the start in alternation.
    graph : DataflowGraph
        Of the normalized module.
    covers : Covers
        All contenders, and the candidates that changes are made of.
    evaluated : Evaluated
        How they did so far.
    trials : int
        How many changes to try; with none nothing is compared again.
    budget : Budget, optional
        No trial is begun that there is no time for.
    storage : str, optional
        An Optuna storage URL, or a journal's path, that keeps the trials; several processes may
        share it, and those of other models and devices are kept apart.
    seed : int
        Of the changes.
    fits : callable, optional
        Whether one may be had at all: what is over a limit is not tried.
    progress : callable
        Informed of each trial.

    Returns
    -------
    Evaluated
        The same where nothing was tried.

    Examples
    --------
    >>> from collage.pipeline import evaluate_contenders, find_covers
    >>> from collage.testing.estimated import estimated_search
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> covers = find_covers(search.graph, search.targets, "single:tvm", search.costs)
    >>> evaluated = evaluate_contenders(search.comparison, covers.contenders)
    >>> refined = refine_winner(search.comparison, search.graph, covers, evaluated, trials=2)
    >>> [evaluation.contender.name for evaluation in refined.evaluations]
    ['single:tvm', 'refined']
    """
    time = Budget() if budget is None else budget

    def time_left() -> bool:
        return time.contenders_that_fit(1) > 0

    if trials == 0 or not time_left():
        return evaluated
    start = evaluated.winner.contender
    start_sec = evaluated.winner.cost.median_sec
    done = 0

    def seconds(partitioning: Partitioning) -> float:
        nonlocal done
        done += 1
        progress(ProgressEvent("refine", min(done, trials), trials, partitioning.origin))
        change = Contender("trial", partitioning)
        if not fits(change):
            return float("inf")
        reference, trial = comparison.compare([start, change])
        if not (reference.cost.is_valid and trial.cost.is_valid):
            return float("inf")
        # Times of different minutes do not compare; ratios to the same start do.
        return start_sec * trial.cost.median_sec / reference.cost.median_sec

    refined = refine(
        graph,
        Partitioning(start.partitioning.candidates, start_sec, start.partitioning.origin),
        covers.found.candidates,
        seconds,
        trials=trials,
        storage=storage,
        study_name=f"collage-{comparison.identity()}",
        seed=seed,
        go_on=time_left,
    )
    takes_part = [
        *(e.contender for e in evaluated.evaluations if e.cost.is_valid or not time.is_limited),
        Contender("refined", refined),
    ]
    evaluations = comparison.compare(takes_part)
    if not any(evaluation.cost.is_valid for evaluation in evaluations):
        return evaluated
    return Evaluated.of(evaluations)
