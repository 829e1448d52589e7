"""What goes through the gate: the search's answer, every single backend, and greedy."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import SearchError, TargetError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import CostModel
from collage.end_to_end._base import Contender
from collage.progress import ProgressCallback, ProgressEvent
from collage.search.dataflow import DataflowGraph
from collage.search.greedy import greedy, single_backend
from collage.search.lazy_search import SearchProgress, search
from collage.search.partitioning import Partitioning
from collage.search.rules import Found, UndominatedRule, default_rules

_BATCH = 4096
"""Candidates asked about together, more than all seeds have: libraries tune together what is asked
together. The cost model itself stops when its time is up."""


def find_contenders(
    graph: DataflowGraph,
    targets: Sequence[BackendTarget],
    strategy: str,
    costs: WorkloadCosts,
    cost_model: CostModel,
    tell: ProgressCallback,
) -> tuple[list[Contender], Found]:
    """What goes through the gate, the search's answer first."""
    if strategy != "search":
        return [Contender(strategy, _without_search(graph, targets, strategy))], Found()
    native = targets[0]
    baselines = [
        Contender(f"single:{t.backend}", single_backend(graph, t, native)) for t in targets
    ]
    if len(targets) > 2:
        baselines.append(Contender("greedy", greedy(graph, targets)))
    costs.set_overheads(cost_model.overheads(native))
    tell(ProgressEvent("enumerate", 0, 1, "looking for candidates"))
    found = UndominatedRule(default_rules(targets)).find(graph)
    tell(ProgressEvent("enumerate", 1, 1, f"{len(found.candidates)} candidates"))
    partitioning = _search(graph, found, [b.partitioning for b in baselines], costs, tell)
    if partitioning is None:
        return baselines, found
    return [Contender("search", partitioning), *baselines], found


def _search(
    graph: DataflowGraph,
    found: Found,
    seeds: Sequence[Partitioning],
    costs: WorkloadCosts,
    tell: ProgressCallback,
) -> Partitioning | None:
    """The cheapest cover; None when the time was up before one was measured throughout."""

    def on_round(step: SearchProgress) -> None:
        done, total = step.evaluated, step.evaluated + step.pending
        message = f"round {step.rounds}: at best {step.optimistic_sec * 1e3:.2f} ms"
        tell(ProgressEvent("search", done, total, message))

    try:
        result = search(
            graph,
            found.candidates,
            costs,
            seeds=seeds,
            batch_size=_BATCH,
            should_stop=lambda: costs.out_of_time,
            on_round=on_round,
        )
    except SearchError:
        # With the time spent, candidates that were not measured count as unusable.
        if not costs.out_of_time:
            raise
        return None
    return result.partitioning


def _without_search(
    graph: DataflowGraph, targets: Sequence[BackendTarget], strategy: str
) -> Partitioning:
    if strategy == "greedy":
        return greedy(graph, targets)
    name = strategy.removeprefix("single:")
    chosen = next(target for target in targets if target.backend == name)
    return single_backend(graph, chosen, targets[0])


def taking_part(strategy: str, targets: Sequence[BackendTarget]) -> list[BackendTarget]:
    """The targets that a strategy may use, besides TVM itself."""
    name = strategy.removeprefix("single:")
    return [t for t in targets if name in ("search", "greedy", t.backend)]


def check_strategy(strategy: str, targets: Sequence[BackendTarget]) -> None:
    names = [target.backend for target in targets]
    valid = ["search", "greedy", *(f"single:{name}" for name in names)]
    if strategy not in valid:
        raise TargetError(
            f"unknown strategy '{strategy}'; with these targets: {', '.join(valid)}",
            value=strategy,
        )
