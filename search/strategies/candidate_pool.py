"""What a search knows of its candidates' costs: measured ones, and bounds of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts, checked_seconds
from collage.search.dataflow import DataflowGraph, bits, mask_key
from collage.search.partitioning import Partitioning, make_partitioning
from collage.search.rules._base import PartitionRule
from collage.search.strategies.cover import Block, Cover, cheapest_of


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
    tolerance : float
        See :func:`collage.search.search`.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        candidates: Sequence[Candidate],
        costs: CandidateCosts,
        tolerance: float = 0.0,
    ) -> None:
        self.graph = graph
        self.tolerance = tolerance
        self.candidates: list[Candidate] = []
        self.costs = costs
        self.measured: list[bool] = []
        self.values: list[float] = []
        self.evaluated = 0
        self.rescued: list[int] = []
        self.blocks: list[Block] = []
        self._group_of: dict[tuple[int, int], int] = {}
        self._groups: list[int] = []
        self.add(candidates)
        self.refresh()

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Let more candidates take part."""
        for candidate in candidates:
            group = self._group_of.setdefault(mask_key(candidate.nodes), len(self.blocks))
            if group == len(self.blocks):
                self.blocks.append(Block.of(candidate.nodes))
            self._groups.append(group)
            self.candidates.append(candidate)
            self.measured.append(candidate.inline)
            self.values.append(0.0 if candidate.inline else self._bound(candidate))

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
                    self.values[position] = self._bound(candidate)
        return sum(self.measured) - before

    def _bound(self, candidate: Candidate) -> float:
        """What stands for a cost that is not known. Where ties may be decided either way, what is
        unlikely need not be looked at."""
        if self.tolerance:
            return self.costs.likely_bound(candidate)
        return self.costs.lower_bound(candidate)

    def evaluate(self, positions: Sequence[int]) -> bool:
        """Ask for costs; whether there was time for all of them."""
        wanted = [self.candidates[p] for p in positions]
        found = checked_seconds(self.costs, wanted) if wanted else []
        for position, value in zip(positions, found, strict=True):
            if value is not None:
                self.values[position], self.measured[position] = value, True
                self.evaluated += 1
        return None not in found

    def cover(
        self,
        max_states: int,
        should_stop: Callable[[], bool] | None = None,
        *,
        only: Sequence[int] | None = None,
        values: Sequence[float] | None = None,
    ) -> Cover | None:
        """The cheapest cover; larger candidates are preferred.

        A candidate of n bindings counts as dearer by an n-th of half the tolerance.

        Parameters
        ----------
        max_states, should_stop
            See :func:`collage.search.strategies.cover.cheapest_cover`.
        only : sequence of int, optional
            The positions to choose among; all by default.
        values : sequence of float, optional
            By position, in place of what is known.

        Returns
        -------
        Cover or None
            Its positions are those in the pool, its cost the sum of their values; None where they
            cannot cover the graph.
        """
        values = self.values if values is None else values
        positions = range(len(self.candidates)) if only is None else only
        chosen = self._with_ties(self._best_of_blocks(positions, values), positions, values)
        blocks = [self.blocks[self._groups[p]] for p in chosen]
        share = self.tolerance / 2
        dearer = [
            values[p] * (1 + share / len(block.members))
            for p, block in zip(chosen, blocks, strict=True)
        ]
        cover = cheapest_of(self.graph, blocks, dearer, max_states, should_stop)
        if cover is None:
            return None
        path = tuple(chosen[n] for n in cover.positions)
        return replace(cover, positions=path, cost=math.fsum(values[p] for p in path))

    def least_sec(
        self, max_states: int, should_stop: Callable[[], bool], *, surely: bool = False
    ) -> float | None:
        """What no cover is likely to cost less than, ties aside.

        Parameters
        ----------
        max_states, should_stop
            See :func:`collage.search.strategies.cover.cheapest_cover`.
        surely : bool
            What none can cost less than.

        Returns
        -------
        float or None
            None where the limit on states left that open.
        """
        values = self.values
        if surely:
            values = [
                value if measured else self.costs.lower_bound(candidate)
                for candidate, value, measured in zip(
                    self.candidates, values, self.measured, strict=True
                )
            ]
        best = [p for p in self._best_of_blocks(range(len(values)), values) if p >= 0]
        blocks = [self.blocks[self._groups[p]] for p in best]
        cover = cheapest_of(self.graph, blocks, [values[p] for p in best], max_states, should_stop)
        return cover.cost if cover is not None and cover.optimal else None

    def _best_of_blocks(self, positions: Sequence[int], values: Sequence[float]) -> list[int]:
        """By block the position of its most promising candidate, a measured one among equals; -1
        where it has none."""

        def rank(position: int) -> tuple[float, bool, int]:
            return values[position], not self.measured[position], position

        best = [-1] * len(self.blocks)
        for p in positions:
            group = self._groups[p]
            if best[group] < 0 or rank(p) < rank(best[group]):
                best[group] = p
        return best

    def _with_ties(
        self, best: list[int], positions: Sequence[int], values: Sequence[float]
    ) -> list[int]:
        """The best of blocks, where they are measured the first that is as good within the
        tolerance, measured or not: what stands depends on their order, not on what was asked."""
        if self.tolerance:
            most = [
                values[p] * (1 + self.tolerance) if p >= 0 and self.measured[p] else -math.inf
                for p in best
            ]
            for p in sorted(positions, reverse=True):
                if values[p] <= most[self._groups[p]]:
                    best[self._groups[p]] = p
        return [p for p in best if p >= 0]

    def earlier(self, positions: Sequence[int]) -> list[int]:
        """Unmeasured candidates that would stand in the place of these, if they are as good within
        the tolerance, which is not excluded.

        Parameters
        ----------
        positions : sequence of int
            Of measured ones.

        Returns
        -------
        list of int
            Positions in the pool.
        """
        chosen = {self._groups[p]: p for p in positions}
        return [
            p
            for p, group in enumerate(self._groups)
            if p < chosen.get(group, -1)
            and not self.measured[p]
            and self.values[p] <= self.values[chosen[group]] * (1 + self.tolerance)
        ]

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

    def partitioning(self, cover: Cover) -> Partitioning:
        """The candidates of a cover.

        Parameters
        ----------
        cover : Cover
            Made by :meth:`cover`.

        Returns
        -------
        Partitioning
            With the cover's cost; its origin says whether that is proven to be optimal.
        """
        origin = "optimal" if cover.optimal else "searched"
        chosen = [self.candidates[p] for p in cover.positions]
        return make_partitioning(self.graph, chosen, cover.cost, origin)
