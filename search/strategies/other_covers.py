"""Covers that would be better than the answer, if sums were off in one of two ways.

Parts' costs alone do not add up to what the whole takes. As long as nobody has timed the whole, by
how much is not known, but in which ways is:

- each part takes something more, for it is called, threads are handed over, and what it reads has
  left the nearer caches: then one of fewer parts may be better, however much more its parts take;
- just what the answer is made of takes more than it did alone, since it was chosen for what it took
  alone: then one of other parts may be better.

Each way has one unknown, a price. The covers that are the cheapest at some price are few, and no
other can be the best, whatever the price is. The first ones that are told apart from the answer
are what is worth timing whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, make_partitioning
from collage.search.strategies.candidate_pool import CandidatePool
from collage.search.strategies.lighter_cover import WeighedCover, lighter_cover, solver

LARGEST_ERROR = 0.3
"""Of the answer's sum: wholes took up to 1.29 times their sums (``benchmarks/results/sums.md``)."""

STEP = 0.1
"""Of the answer's parts, or of its time, in which the next cover has to differ."""


@dataclass(frozen=True)
class OtherCover:
    """A cover besides the answer.

    Attributes
    ----------
    partitioning : Partitioning
        With the sum of its parts' costs.
    error : float
        By what share of its sum the answer has to take more, in one of the ways that are looked at,
        for this one to be faster: 0.05 is five percent.

    Examples
    --------
    >>> OtherCover(Partitioning((), seconds=2e-3), error=0.05).error
    0.05
    """

    partitioning: Partitioning
    error: float


def other_covers(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    costs: CandidateCosts,
    answer: Partitioning,
    count: int,
    *,
    known: Sequence[Partitioning] = (),
    largest_error: float = LARGEST_ERROR,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[OtherCover]:
    """Those to be timed whole beside the answer.

    In each of the two ways, in turns, the one that needs the least error first. Each has at least a
    tenth fewer parts than the answer and those before it, or at least a tenth of the answer's time
    less in common with it: what differs in a trifle would take the same.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    candidates : sequence of Candidate
        Those of unknown cost are left out; nothing is measured.
    costs : CandidateCosts
        Asked for what is known.
    answer : Partitioning
        The best one, by these costs.
    count : int
        How many are wanted.
    known : sequence of Partitioning, optional
        Covers that are timed anyway: they are none of those that are wanted.
    largest_error : float
        Whoever needs more cannot win.
    should_stop : callable, optional
        Asked between searches; what was found by then is returned.

    Returns
    -------
    list of OtherCover
        Fewer where there are no more.

    Notes
    -----
    About ten searches for each cover that is wanted, see
    :func:`~collage.search.strategies.lighter_cover.lighter_cover`.

    Examples
    --------
    Two bindings; a library would have both at once for little more:

    >>> from collage.search import TableCosts
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> table = {Candidate(1, tvm): 1.0, Candidate(2, tvm): 1.0, Candidate(3, onednn): 2.1}
    >>> costs = TableCosts(table)
    >>> costs.seconds(list(table))
    [1.0, 1.0, 2.1]
    >>> answer = Partitioning(tuple(table)[:2])
    >>> [other] = other_covers(graph, list(table), costs, answer, 2)
    >>> len(other.partitioning.candidates), round(other.error, 3)
    (1, 0.05)
    """
    pool = CandidatePool(graph, [*answer.candidates, *candidates], costs)
    kept = set(answer.candidates)
    if count < 1 or not all(pool.measured[: len(answer.candidates)]):
        return []
    each_part = [0.0 if one.inline else 1.0 for one in pool.candidates]
    in_common = [
        seconds if one in kept and math.isfinite(seconds) else 0.0
        for one, seconds in zip(pool.candidates, pool.values, strict=True)
    ]
    ways = [
        _of_way(pool, weights, len(answer.candidates), largest_error, should_stop)
        for weights in (each_part, in_common)
    ]
    begun = [(first, way) for way in ways if (first := next(way, None)) is not None]
    begun.sort(key=lambda pair: pair[0].error)
    turns = chain.from_iterable(zip_longest(*(chain([first], way) for first, way in begun)))
    taken = {answer.key(), *(one.key() for one in known)}
    found: list[OtherCover] = []
    for one in turns:
        if len(found) == count:
            break
        if one is not None and one.partitioning.key() not in taken:
            taken.add(one.partitioning.key())
            found.append(one)
    return found


def _of_way(
    pool: CandidatePool,
    weights: list[float],
    parts: int,
    largest_error: float,
    should_stop: Callable[[], bool],
) -> Iterator[OtherCover]:
    """Those of one way: the pool's first candidates are the answer's parts, weights what the error
    is in proportion to."""
    own = range(parts)
    answer = WeighedCover(
        tuple(own), *(math.fsum(by[p] for p in own) for by in (pool.values, weights))
    )
    if answer.weight == 0.0 or answer.seconds == 0.0:
        return
    solve, heavy = solver(pool, weights, should_stop), answer
    most = largest_error * answer.seconds / answer.weight
    while found := lighter_cover(solve, heavy, heavy.weight - STEP * answer.weight, most):
        price = (found.seconds - answer.seconds) / (answer.weight - found.weight)
        error = max(0.0, price) * answer.weight / answer.seconds
        chosen = [pool.candidates[p] for p in found.positions]
        yield OtherCover(make_partitioning(pool.graph, chosen, found.seconds, "other"), error)
        heavy = found
