"""The last comparison: covers against each other, end to end, and changes to the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender, EndToEndComparison, Evaluation, best
from collage.pipeline.covers import Covers
from collage.search.dataflow import DataflowGraph
from collage.search.evolutionary import refine
from collage.search.partitioning import Partitioning


@dataclass(frozen=True)
class Evaluated:
    """How the contenders did, and which of them won.

    Attributes
    ----------
    evaluations : tuple of Evaluation
        In the order of the contenders.
    winner : Evaluation
        One of them: the fastest.

    Examples
    --------
    >>> import tvm
    >>> from collage.cost import Cost, CostStatus
    >>> contender = Contender("greedy", Partitioning(()))
    >>> one = Evaluation(contender, tvm.IRModule(), "2d71", Cost(CostStatus.VALID, 1e-3))
    >>> Evaluated((one,), winner=one).winner.contender.name
    'greedy'
    """

    evaluations: tuple[Evaluation, ...]
    winner: Evaluation


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

    Raises
    ------
    MeasurementError
        When none runs correctly.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.candidate_costs import WorkloadCosts
    >>> from collage.cost import TableCostModel
    >>> from collage.end_to_end import EstimatedComparison, baselines
    >>> from collage.pipeline import import_model, open_session
    >>> from collage.testing import graph
    >>> session = open_session(["llvm", "onednn"])
    >>> targets = session.targets
    >>> imported = import_model(graph([(8,)], lambda emit, x: op.exp(x)), targets.device)
    >>> table = TableCostModel({("exp 8", "tvm"): 2e-6, ("exp 8", "onednn"): 1e-6})
    >>> costs = WorkloadCosts(imported.mod, imported.graph, table)
    >>> comparison = EstimatedComparison(
    ...     imported.mod, imported.graph, targets, session.context, costs=costs
    ... )
    >>> evaluate_contenders(comparison, baselines(imported.graph, targets)).winner.contender.name
    'single:onednn'
    """
    evaluations = comparison.compare(contenders)
    return Evaluated(tuple(evaluations), best(evaluations))


def refine_winner(
    comparison: EndToEndComparison,
    graph: DataflowGraph,
    covers: Covers,
    evaluated: Evaluated,
    *,
    trials: int,
    storage: str | None = None,
    seed: int = 0,
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
    storage : str, optional
        An Optuna storage URL that keeps the trials.
    seed : int
        Of the changes.
    progress : callable
        Informed of each trial.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.candidate_costs import WorkloadCosts
    >>> from collage.cost import TableCostModel
    >>> from collage.end_to_end import EstimatedComparison
    >>> from collage.pipeline import find_covers, import_model, open_session
    >>> from collage.testing import graph
    >>> session = open_session(["llvm", "onednn"])
    >>> targets = session.targets
    >>> imported = import_model(graph([(8,)], lambda emit, x: op.exp(x)), targets.device)
    >>> table = TableCostModel({("exp 8", "tvm"): 2e-6, ("exp 8", "onednn"): 1e-6})
    >>> costs = WorkloadCosts(imported.mod, imported.graph, table)
    >>> comparison = EstimatedComparison(
    ...     imported.mod, imported.graph, targets, session.context, costs=costs
    ... )
    >>> covers = find_covers(imported.graph, targets, "single:tvm", costs)
    >>> evaluated = evaluate_contenders(comparison, covers.contenders)
    >>> refined = refine_winner(comparison, imported.graph, covers, evaluated, trials=2)
    >>> [evaluation.contender.name for evaluation in refined.evaluations]
    ['single:tvm', 'refined']
    """
    if trials == 0:
        return evaluated
    start = evaluated.winner.contender
    start_sec = evaluated.winner.cost.median_sec
    done = 0

    def seconds(partitioning: Partitioning) -> float:
        nonlocal done
        done += 1
        progress(ProgressEvent("refine", min(done, trials), trials, partitioning.origin))
        reference, trial = comparison.compare([start, Contender("trial", partitioning)])
        # Times of different minutes do not compare; ratios to the same start do.
        return start_sec * trial.cost.median_sec / reference.cost.median_sec

    refined = refine(
        graph,
        Partitioning(start.partitioning.candidates, start_sec, start.partitioning.origin),
        covers.found.candidates,
        seconds,
        trials=trials,
        storage=storage,
        study_name=f"collage-{evaluated.winner.key[:16]}",
        seed=seed,
    )
    return evaluate_contenders(comparison, [*covers.contenders, Contender("refined", refined)])
