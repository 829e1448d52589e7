"""What a search knows of its candidates' costs: measured ones, and bounds of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, checked_seconds
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning, make_partitioning
from collage.search.rules._base import PartitionRule
from collage.search.strategies.cover import Cover


class CandidatePool:
    """Candidates with what is known of their costs, by position.

    Parameters
    ----------
    graph : DataflowGraph
        What they are of.
    candidates : sequence of Candidate
        Earlier ones win ties.
    costs : CandidateCosts
        Asked for lower bounds at once, and for costs when the search wants them.
    """

    def __init__(
        self, graph: DataflowGraph, candidates: Sequence[Candidate], costs: CandidateCosts
    ) -> None:
        self.graph = graph
        self.candidates: list[Candidate] = []
        self.costs = costs
        self.measured: list[bool] = []
        self.values: list[float] = []
        self.evaluated = 0
        self.rescued: list[int] = []
        self.by_block: dict[int, list[int]] = {}
        self.add(candidates)
        self.refresh()

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Let more candidates take part."""
        for candidate in candidates:
            self.by_block.setdefault(candidate.nodes, []).append(len(self.candidates))
            self.candidates.append(candidate)
            self.measured.append(candidate.inline)
            self.values.append(0.0 if candidate.inline else self.costs.lower_bound(candidate))

    def rescue(
        self, last_resorts: Sequence[PartitionRule], only: Sequence[int] | None = None
    ) -> bool:
        """Add what the first last resort that has anything new finds for bindings left over.

        Those are the bindings that nothing usable holds; where each is held but no set of
        candidates fits together, those that nothing usable holds alone.

        Parameters
        ----------
        last_resorts : sequence of PartitionRule
            Asked one after the other.
        only : sequence of int, optional
            The positions that count; all by default.

        Returns
        -------
        bool
            Whether any had something new.
        """
        left = self.uncovered(only) or self.uncovered(only, alone=True)
        for rule in last_resorts:
            known = set(self.candidates)
            found = rule.find(self.graph).candidates
            fresh = [c for c in found if c.nodes & left and c not in known]
            if fresh:
                self.rescued += range(len(self.candidates), len(self.candidates) + len(fresh))
                self.add(fresh)
                return True
        return False

    def uncovered(self, only: Sequence[int] | None = None, *, alone: bool = False) -> int:
        """The bindings that no usable candidate holds; or none that holds nothing besides.

        Parameters
        ----------
        only : sequence of int, optional
            The positions that count; all by default.
        alone : bool
            Whether candidates of several bindings do not count.

        Returns
        -------
        int
            A bit set of indices; 0 when all are covered.
        """
        held = 0
        for p in range(len(self.candidates)) if only is None else only:
            nodes = self.candidates[p].nodes
            if self.values[p] < math.inf and not (alone and nodes.bit_count() > 1):
                held |= nodes
        return self.graph.all_nodes & ~held

    def refresh(self) -> int:
        """Take over what became known meanwhile: costs, and lower bounds that had to give way.

        Returns
        -------
        int
            How many costs.
        """
        before = sum(self.measured)
        for position, candidate in enumerate(self.candidates):
            if not self.measured[position]:
                known = self.costs.known(candidate)
                if known is not None:
                    self.values[position], self.measured[position] = known, True
                else:
                    self.values[position] = self.costs.lower_bound(candidate)
        return sum(self.measured) - before

    def evaluate(self, positions: Sequence[int]) -> bool:
        """Ask for costs; whether there was time for all of them."""
        wanted = [self.candidates[p] for p in positions]
        found = checked_seconds(self.costs, wanted) if wanted else []
        for position, value in zip(positions, found, strict=True):
            if value is not None:
                self.values[position], self.measured[position] = value, True
                self.evaluated += 1
        return None not in found

    def cheapest_by_block(
        self, only: Sequence[int] | None = None, values: Sequence[float] | None = None
    ) -> dict[int, int]:
        """For each distinct block its most promising candidate; a measured one among equals.

        Parameters
        ----------
        only : sequence of int, optional
            The positions to choose among; all by default.
        values : sequence of float, optional
            By position, in place of what is known.

        Returns
        -------
        dict of int to int
            Positions, by the block's nodes.
        """
        values = self.values if values is None else values

        def rank(position: int) -> tuple[float, bool, int]:
            return values[position], not self.measured[position], position

        found: dict[int, int] = {}
        for p in range(len(self.candidates)) if only is None else only:
            best = found.setdefault(self.candidates[p].nodes, p)
            if rank(p) < rank(best):
                found[self.candidates[p].nodes] = p
        return found

    def others(self, wanted: Sequence[int], path: Sequence[int] = ()) -> list[int]:
        """Unmeasured candidates besides these, the most promising ones first: those that are cheap
        for what they cover, by what the candidates of a path cost; without one in their order.

        Parameters
        ----------
        wanted : sequence of int
            The positions of those that are going to be evaluated anyway.
        path : sequence of int
            The positions of a cover's candidates.

        Returns
        -------
        list of int
            Positions in the pool, of equal candidates the first one.
        """
        prices: dict[int, float] = {}
        for p in path:
            nodes = list(bits(self.candidates[p].nodes))
            prices.update(dict.fromkeys(nodes, self.values[p] / len(nodes)))
        known = {self.candidates[p] for p in wanted}
        ratios: dict[Candidate, tuple[float, int]] = {}
        for p, candidate in enumerate(self.candidates):
            if not self.measured[p] and candidate not in known:
                price = sum(prices.get(node, 0.0) for node in bits(candidate.nodes))
                ratios.setdefault(candidate, (self.values[p] / price if price else math.inf, p))
        return [p for _, p in sorted(ratios.values())]

    def partitioning(self, path: Sequence[int], cover: Cover) -> Partitioning:
        """The candidates of a cover.

        Parameters
        ----------
        path : sequence of int
            Their positions.
        cover : Cover
            That they were chosen for.

        Returns
        -------
        Partitioning
            With the cover's cost; its origin says whether that is proven to be optimal.
        """
        origin = "optimal" if cover.optimal else "searched"
        return make_partitioning(self.graph, [self.candidates[p] for p in path], cover.cost, origin)
