"""Searches where something besides time has a price: bytes, or digits lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.backends.contract.errors import SearchError
from collage.cost.deadline import Deadline
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.rules import PartitionRule
from collage.search.strategies import search


class PricedCosts:
    """A search's costs: seconds, and a price for each unit of something else.

    Parameters
    ----------
    costs : CandidateCosts
        The seconds.
    amount : callable
        How much of the other thing a candidate takes.
    price : float
        Seconds a unit; infinite, and no candidate that takes any can be used.

    Examples
    --------
    >>> from collage.search.costs import TableCosts
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> small, large = Candidate(0b1, tvm), Candidate(0b1, onednn)
    >>> table = TableCosts({small: 2e-3, large: 1e-3})
    >>> PricedCosts(table, {small: 0.0, large: 4.0}.__getitem__, 0.5).seconds([small, large])
    [0.002, 2.001]
    """

    def __init__(
        self, costs: CandidateCosts, amount: Callable[[Candidate], float], price: float
    ) -> None:
        self._costs, self._amount, self._price = costs, amount, price

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        found = zip(candidates, self._costs.seconds(candidates), strict=True)
        return [None if sec is None else sec + self._of(one) for one, sec in found]

    def known(self, candidate: Candidate) -> float | None:
        sec = self._costs.known(candidate)
        return None if sec is None else sec + self._of(candidate)

    def lower_bound(self, candidate: Candidate) -> float:
        return self._costs.lower_bound(candidate) + self._of(candidate)

    def likely_bound(self, candidate: Candidate) -> float:
        return self._costs.likely_bound(candidate) + self._of(candidate)

    def guess(self, candidate: Candidate) -> float:
        return self._costs.guess(candidate) + self._of(candidate)

    def _of(self, candidate: Candidate) -> float:
        amount = self._amount(candidate)
        # Nothing at an infinite price is free, and so is whatever there is at none.
        return self._price * amount if self._price and amount else 0.0


def cheapest_at_price(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    priced: CandidateCosts,
    costs: CandidateCosts,
    seeds: Sequence[Partitioning],
    rules: Sequence[PartitionRule],
    deadline: Deadline,
) -> Partitioning | None:
    """The cheapest cover at a price, with the seconds that it takes without one.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    candidates : sequence of Candidate
        To choose among.
    priced : CandidateCosts
        Seconds and the price.
    costs : CandidateCosts
        Seconds alone.
    seeds : sequence of Partitioning
        Covers that are known.
    rules : sequence of PartitionRule
        Last resorts.
    deadline : Deadline
        After it nothing is measured: what is known by then is searched.

    Returns
    -------
    Partitioning or None
        None where nothing that is known covers the graph at this price: so it is when the time is
        up.
    """
    try:
        result = search(
            *(graph, candidates, priced),
            seeds=seeds,
            should_stop=lambda: deadline.is_up,
            last_resorts=rules,
        )
    except SearchError:
        return None
    if result.partitioning is None:
        return None
    return replace(
        result.partitioning, seconds=sum(map(costs.guess, result.partitioning.candidates))
    )
