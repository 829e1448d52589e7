"""The middle stages: candidates are found, and covers chosen among them by their costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collage.backends.contract import TargetSet
from collage.backends.contract.errors import OutOfTimeError, RestrictionError, SearchError
from collage.candidate_costs import WorkloadCosts
from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import (
    FURTHER,
    Contender,
    PartitionRepair,
    baselines,
    without_search,
)
from collage.pipeline.candidates import find_candidates, has_to_tune
from collage.pipeline.layouts import LAYOUTS, compare_layouts
from collage.pipeline.rival_contests import RivalContests
from collage.report.data import EQUAL
from collage.search.dataflow import DataflowGraph
from collage.search.layouts import LayoutGraph
from collage.search.partitioning import Partitioning
from collage.search.restrictions import UNRESTRICTED, Restrictions
from collage.search.rules import (
    Found,
    PartitionRule,
    RestrictedRule,
    last_resorts,
    lifted,
)
from collage.search.strategies import SearchProgress, SearchResult, other_covers, search

_BATCH = 4096
"""Candidates asked about together, more than all seeds have: libraries tune together what is asked
together. The cost model itself stops when its time is up."""

_NOT_SEARCHED = SearchResult(None, False, 0.0, 0.0, evaluated=0, rounds=0, expanded=0)


@dataclass(frozen=True)
class Covers:
    """Partitionings that are worth comparing end to end, and what they were chosen from.

    Attributes
    ----------
    contenders : tuple of Contender
        The search's answer first, if there is one.
    found : Found
        Candidates and rejections of the whole graph; empty without a search.
    result : SearchResult or None
        How far the search came.
    remarks : tuple of str
        What is to be said of how it went.

    Examples
    --------
    >>> Covers((Contender("greedy", Partitioning(())),), Found()).contenders[0].name
    'greedy'
    """

    contenders: tuple[Contender, ...]
    found: Found
    result: SearchResult | None = None
    remarks: tuple[str, ...] = ()

    def repaired(
        self,
        repair: PartitionRepair,
        deadline: Deadline = NEVER,
        restrictions: Restrictions = UNRESTRICTED,
    ) -> Covers:
        """The same without the partitions that libraries refuse, which become rejections.

        Parameters
        ----------
        repair : PartitionRepair
            Asks the libraries.
        deadline : Deadline, optional
            Those that they were not asked about by then stay as they are.
        restrictions : Restrictions, optional
            Contenders that do not keep to them once TVM has what was refused are left out.

        Returns
        -------
        Covers
            With the same statistics of the search.

        Raises
        ------
        RestrictionError
            When none is left.
        """
        repaired = [
            contender if deadline.is_up else repair.repair(contender)
            for contender in self.contenders
        ]
        contenders = tuple(
            one for one in repaired if all(map(restrictions.allow, one.partitioning.candidates))
        )
        if repaired and not contenders:
            refused = "; ".join(dict.fromkeys(one.reason for one in repair.rejections()))
            raise RestrictionError(
                f"what is pinned or banned leaves nothing that compiles: {refused}", value=refused
            )
        rejections = (*self.found.rejections, *repair.rejections())
        found = replace(self.found, rejections=rejections)
        return replace(self, contenders=contenders, found=found)


def find_covers(
    graph: DataflowGraph,
    targets: TargetSet,
    strategy: str,
    costs: WorkloadCosts,
    progress: ProgressCallback = ignore,
    *,
    seeds: Sequence[Contender] | None = None,
    restrictions: Restrictions = UNRESTRICTED,
    deadline: Deadline = NEVER,
    looking: Deadline = NEVER,
    patience: Callable[[int], float] = lambda contests: math.inf,
    best: int = 1,
) -> Covers:
    """The search's answer and the baselines; of another strategy, its one partitioning.

    Parameters
    ----------
    graph, targets
        As :func:`baselines` takes them.
    strategy : str
        ``search``, ``greedy`` or ``single:<backend>``.
    costs : WorkloadCosts
        What a search asks.
    progress : callable
        Informed of the search's rounds.
    seeds : sequence of Contender, optional
        What :func:`seeds_of` gave, if it was asked before.
    restrictions : Restrictions, optional
        What may not be used.
    deadline : Deadline, optional
        When it comes, the answer is made of what is known by then.
    looking : Deadline, optional
        When candidates that are not found yet are none: the baselines are all there is then.
    patience : callable, optional
        Given how often that was done, seconds that there are now for timing the answer's parts and
        their rivals once more.
    best : int
        Covers that are wanted of the search, see
        :func:`~collage.search.strategies.other_covers.other_covers`.

    Returns
    -------
    Covers
        The search's answer first, then the seeds, then its other covers; what was found is empty
        where nothing was looked for.

    Raises
    ------
    SearchError
        When no partitioning covers the graph.

    Examples
    --------
    >>> from collage.testing.estimated import estimated_search
    >>> one = estimated_search({"tvm": 1e-6})
    >>> covers = find_covers(one.graph, one.targets, "search", one.costs)
    >>> [contender.name for contender in covers.contenders]
    ['search', 'single:tvm']
    """
    seeds = seeds_of(graph, targets, strategy, restrictions) if seeds is None else seeds
    if strategy != "search":
        return Covers(tuple(seeds), Found())
    try:
        looking.check()
        costs.ask_overheads(targets.native)
        found = find_candidates(graph, targets, progress, restrictions=restrictions, until=looking)
    except OutOfTimeError:
        progress(ProgressEvent("enumerate", 1, 1, "no time to look for candidates"))
        return Covers(tuple(seeds), Found(), _NOT_SEARCHED)
    partitionings = [seed.partitioning for seed in seeds]
    rules = [RestrictedRule(rule, restrictions) for rule in last_resorts(targets.native)]
    asked = (graph, found, partitionings, costs, progress, deadline, rules)
    contests = RivalContests(graph, costs, patience, progress)
    result = contests.settle(found.candidates, _search(*asked), lambda: _search(*asked))
    if result is None or result.partitioning is None or not result.evaluated:
        # A search that knows no cost has only chosen among guesses, as whoever compares these does.
        return Covers(tuple(seeds), found, result)
    first = Contender("search", result.partitioning)
    others = other_covers(
        *(graph, found.candidates, costs, result.partitioning, best - 1),
        known=partitionings,
        should_stop=lambda: deadline.is_up,
    )
    more = [Contender(f"{FURTHER}{n}", one.partitioning) for n, one in enumerate(others, 2)]
    own = LAYOUTS[targets.device.channels_last]
    layouts = compare_layouts(graph, found.candidates, costs, result.partitioning, own)
    contenders = (first, *seeds, *more, *layouts.others)
    return Covers(contenders, found, result, (*contests.remarks(), *layouts.remarks))


def seeds_of(
    graph: DataflowGraph,
    targets: TargetSet,
    strategy: str,
    restrictions: Restrictions = UNRESTRICTED,
) -> list[Contender]:
    """The partitionings that are there before any cost is known.

    Parameters
    ----------
    graph, targets
        As :func:`baselines` takes them.
    strategy : str
        ``search``, or the one partitioning that is wanted.
    restrictions : Restrictions, optional
        What may not be used.

    Returns
    -------
    list of Contender
        For ``search`` the baselines; else the one that is wanted.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> dataflow = DataflowGraph.from_function(graph([(8,)], lambda emit, x: op.exp(x))["main"])
    >>> [seed.name for seed in seeds_of(dataflow, resolve_targets(["llvm", "onednn"]), "greedy")]
    ['greedy']
    """
    if isinstance(graph, LayoutGraph):
        plain = seeds_of(graph.plain, targets, strategy, graph.on_plain(restrictions))
        return [replace(one, partitioning=lifted(graph, one.partitioning)) for one in plain]
    if strategy == "search":
        return baselines(graph, targets, restrictions)
    return [Contender(strategy, without_search(graph, targets, strategy, restrictions))]


def _search(
    graph: DataflowGraph,
    found: Found,
    seeds: Sequence[Partitioning],
    costs: WorkloadCosts,
    progress: ProgressCallback,
    deadline: Deadline,
    rules: Sequence[PartitionRule],
) -> SearchResult | None:
    """The cheapest cover; None when the time was up and no backend alone covers the graph."""

    def on_round(step: SearchProgress) -> None:
        done, total = step.evaluated, step.evaluated + step.pending
        message = f"round {step.rounds}: at best {step.optimistic_sec * 1e3:.2f} ms"
        progress(ProgressEvent("search", done, total, message))

    try:
        return search(
            graph,
            found.candidates,
            costs,
            seeds=seeds,
            batch_size=_BATCH,
            stream=costs.stream,
            should_stop=lambda: deadline.is_up,
            on_round=on_round,
            last_resorts=rules,
            is_slow_to_build=has_to_tune,
            tolerance=EQUAL,
        )
    except SearchError as err:
        # With the time spent, candidates that were not measured count as unusable.
        if costs.out_of_time:
            return None
        raise SearchError(f"{err}{_reasons(err, costs)}", value=err.value) from err


def _reasons(err: SearchError, costs: WorkloadCosts) -> str:
    """Why the candidates for the bindings that an error names cannot be used."""
    if not isinstance(err.value, tuple):
        return ""
    left = sum(1 << index for index in err.value)
    tried = ((c, cost) for c, cost in costs.costs.items() if c.nodes & left and cost.reason)
    lines = dict.fromkeys(f"{c.backend}: {cost.reason}" for c, cost in tried)
    return "".join(f"; {line}" for line in lines)
