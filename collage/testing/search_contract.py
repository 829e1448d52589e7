"""What every search strategy must keep; derive a test class and give it your ``search``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
import tvm

from collage.backends.contract import BackendTarget
from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.costs import TableCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning, validate

TARGETS = tuple(BackendTarget(name, tvm.target.Target("llvm")) for name in ("tvm", "one", "two"))


def table_of(costs: Mapping[tuple[tuple[int, ...], int], float]) -> dict[Candidate, float]:
    """Candidates with costs, from (bindings, number of the target) to seconds."""
    return {
        Candidate(sum(1 << i for i in nodes), TARGETS[target]): seconds
        for (nodes, target), seconds in costs.items()
    }


def singles(size: int, seconds: float, target: int = 0) -> dict[tuple[tuple[int, ...], int], float]:
    """Every binding alone on one target, at one cost, for :func:`table_of`.

    Parameters
    ----------
    size : int
        How many bindings there are.
    seconds : float
        What each costs.
    target : int
        Its number in ``TARGETS``.

    Returns
    -------
    dict
        Seconds by the bindings and the number of the target.
    """
    return {((i,), target): seconds for i in range(size)}


class SearchContract(ABC):
    """A suite for strategies that take a graph, candidates and costs.

    ``exact`` says whether the strategy promises the optimum.

    Examples
    --------
    >>> from collage.search import search
    >>> class TestSearch(SearchContract):
    ...     def search(self, graph, candidates, costs):
    ...         return search(graph, candidates, costs).partitioning
    >>> TestSearch().test_diamond()
    """

    exact: ClassVar[bool] = True

    @abstractmethod
    def search(
        self, graph: DataflowGraph, candidates: Sequence[Candidate], costs: TableCosts
    ) -> Partitioning:
        """Run the strategy.

        Parameters
        ----------
        graph : DataflowGraph
            What is to be covered.
        candidates : sequence of Candidate
            What may cover it.
        costs : TableCosts
            What each costs.

        Returns
        -------
        Partitioning
            Its answer.
        """

    def check(
        self, uses: Sequence[Sequence[int]], table: Mapping[Candidate, float], optimum: float
    ) -> Partitioning:
        """Search, check the certificate, and compare the cost with the known optimum.

        Parameters
        ----------
        uses : sequence of sequence of int
            What each binding uses, see :meth:`DataflowGraph.from_uses`.
        table : mapping of Candidate to float
            Candidates with their costs.
        optimum : float
            The least cost of a cover.

        Returns
        -------
        Partitioning
            What was found.
        """
        graph = DataflowGraph.from_uses(uses)
        found = self.search(graph, list(table), TableCosts(table))
        validate(graph, found)
        total = math.fsum(0.0 if c.inline else table[c] for c in found.candidates)
        assert found.seconds == pytest.approx(total)
        if self.exact:
            assert total == pytest.approx(optimum)
        else:
            assert total >= optimum - 1e-9
        return found

    def test_prefers_a_cheaper_region(self) -> None:
        table = table_of({**singles(3, 2.0), ((0, 1), 1): 3.0, ((0, 1, 2), 1): 5.0})
        self.check([[], [0], [1]], table, 5.0)

    def test_leaves_a_dear_region(self) -> None:
        table = table_of({**singles(3, 2.0), ((0, 1, 2), 1): 7.0, ((1,), 2): 1.0})
        self.check([[], [0], [1]], table, 5.0)

    def test_diamond(self) -> None:
        table = table_of({**singles(4, 1.0), ((0, 1, 2, 3), 1): 3.5, ((0, 1), 2): 1.0})
        self.check([[], [0], [0], [1, 2]], table, 3.0)

    def test_inline_costs_nothing(self) -> None:
        table = table_of(singles(2, 1.0))
        inline = Candidate(1 << 2, TARGETS[0], inline=True)
        found = self.check([[], [0], [1]], {**table, inline: 99.0}, 2.0)
        assert inline in found.candidates

    def test_invalid_candidates_are_never_chosen(self) -> None:
        table = table_of({**singles(2, 1.0), ((0, 1), 1): math.inf})
        self.check([[], [0]], table, 2.0)

    def test_no_two_partitions_wait_for_each_other(self) -> None:
        # Both pairs together would be cheapest, but each needs a value of the other.
        uses = [[], [], [0, 1], [0, 1]]
        table = table_of({**singles(4, 2.0), ((0, 2), 1): 1.0, ((1, 3), 1): 1.5})
        self.check(uses, table, 5.0)

    def test_nothing_covers(self) -> None:
        graph = DataflowGraph.from_uses([[], [0]])
        table = table_of({((0,), 0): 1.0, ((1,), 0): math.inf})
        with pytest.raises(SearchError):
            self.search(graph, list(table), TableCosts(table))

    def test_repeats_exactly(self) -> None:
        uses = [[], [0], [0], [1, 2], [3]]
        table = table_of({**singles(5, 1.0), **singles(5, 1.0, 1), ((1, 3), 2): 2.0})
        graph = DataflowGraph.from_uses(uses)
        runs = [self.search(graph, list(table), TableCosts(table)) for _ in range(2)]
        assert runs[0] == runs[1]
