"""The partitionings that take part where an error is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.cost.deadline import NEVER, Deadline
from collage.cost.progress import ProgressCallback, ProgressEvent, ignore
from collage.end_to_end import Contender
from collage.pipeline.costing.priced_costs import cheapest_at_price
from collage.pipeline.covers import Covers
from collage.pipeline.precision.error_model import ErrorModel
from collage.pipeline.precision.frontier import Point, frontier
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import PartitionRule


def with_frontier(
    covers: Covers,
    graph: DataflowGraph,
    costs: CandidateCosts,
    errors: ErrorModel,
    repair: Callable[[Contender], Contender | None],
    rules: Sequence[PartitionRule],
    deadline: Deadline,
    looking: Deadline = NEVER,
    progress: ProgressCallback = ignore,
) -> Covers:
    """Covers with the fastest partitionings for the allowed error and for parts of it.

    Parameters
    ----------
    covers : Covers
        As the search has them where time alone counts.
    graph : DataflowGraph
        Of the normalized module.
    costs : CandidateCosts
        What that search asked; these ask for what they need besides.
    errors : ErrorModel
        What is allowed, and what candidates do.
    repair : callable
        Takes out what libraries refuse; None where nothing else may run that.
    rules : sequence of PartitionRule
        Last resorts of a search.
    deadline : Deadline
        After it nothing is measured: searches are over what is known by then.
    looking : Deadline, optional
        After it no further ones are looked for.
    progress : callable, optional
        Told what is looked for.

    Returns
    -------
    Covers
        ``search`` is the fastest that is predicted to keep to the allowed error, the others, named
        after what is predicted, to less; ``exact`` has all digits.
    """
    if not any(one.name == "search" for one in covers.contenders):
        return covers
    seeds = [one.partitioning for one in covers.contenders]

    def cheapest(priced: CandidateCosts) -> Partitioning | None:
        progress(ProgressEvent("precision", 0, 0, "looking between time and error"))
        return cheapest_at_price(
            graph, covers.found.candidates, priced, costs, seeds, rules, deadline
        )

    points = frontier(cheapest, costs, errors, lambda: looking.is_up)
    if not points:
        # The comparison rules out what is off by too much.
        return covers
    named = [
        Contender(_name(number, point), point.partitioning) for number, point in enumerate(points)
    ]
    repaired = [one for one in map(repair, named) if one is not None]
    others = [one for one in covers.contenders if one.name != "search"]
    return replace(covers, contenders=(*repaired, *others))


def promised_within(contenders: Sequence[Contender], errors: ErrorModel) -> list[Contender]:
    """Those that round something and are predicted to keep to the allowed error.

    A library's switch for a whole model is an answer at once, whatever a search has time for.

    Parameters
    ----------
    contenders : sequence of Contender
        Any.
    errors : ErrorModel
        What is allowed, and what candidates do.

    Returns
    -------
    list of Contender
        The least exact first: they have the fewest digits.
    """
    found = [(errors.error(one.partitioning.candidates), one) for one in contenders]
    kept = [(error, one) for error, one in found if 0.0 < error <= errors.max_error]
    return [one for _, one in sorted(kept, key=lambda pair: -pair[0])]


def _name(number: int, point: Point) -> str:
    if number == 0:
        return "search"
    return f"within:{point.error:.1e}" if point.error else "exact"
