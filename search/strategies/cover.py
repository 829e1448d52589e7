"""The cheapest exact cover of a graph by blocks of given costs: Dijkstra over covered sets.

As in tvm-rfcs 0062, a state is the set of bindings covered so far and a step must cover the next
uncovered binding, so every cover is reached in one order only. Two things are added:

- Potentials. A price per binding such that no block costs less than its bindings together is a
  feasible dual of the set-partitioning program; Dijkstra over ``cost - prices`` (A*, in other
  words) visits the states near the optimum instead of all of them.
- Cycles. Disjoint convex blocks can still wait for each other. The cover is first sought without
  minding that; only if the optimum has a cycle is it sought again with states that also hold how
  the unfinished blocks depend on each other, which makes the search exact.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import quotient
from collage.search.strategies.potentials import reduced_costs
from collage.search.subgraph import union_of

Unfinished = tuple[tuple[int, int], ...]
"""Blocks that reach beyond the first uncovered binding, each with the covered bindings that depend
on it; only those that something uncovered may still use."""

State = tuple[int, int, Unfinished]
"""The first uncovered binding, what is covered beyond it (as a bit mask that begins there), and the
unfinished blocks: a state is as large as its border, not as the graph."""

_Step = tuple[int, int, float]
"""A block's mask from its first binding on, its position, and its reduced cost."""

EFFORTS = ((0, 10_000), (20, 30_000), (80, None))
"""Rounds spent on the potentials, and after how many states more are worth their while."""

DEFAULT_MAX_STATES = 200_000

_STATES = 1024
"""Visited between two looks at whether there is time to go on."""


@dataclass(frozen=True, slots=True)
class Block:
    """A set of bindings, with what a search asks of it again and again.

    Attributes
    ----------
    mask : int
        Bit mask.
    members : tuple of int
        The same as indices, ascending.
    shape : int
        The mask from its first member on.

    Examples
    --------
    >>> Block.of(0b1100)
    Block(mask=12, members=(2, 3), shape=3)
    """

    mask: int
    members: tuple[int, ...]
    shape: int

    @classmethod
    def of(cls, mask: int) -> Block:
        """The block of a bit mask that is not empty."""
        members = tuple(bits(mask))
        return cls(mask, members, mask >> members[0])


@dataclass(frozen=True)
class Cover:
    """Blocks that cover a graph, and whose quotient has no cycle.

    Attributes
    ----------
    blocks : tuple of int
        Bit masks, in the order in which the search placed them.
    cost : float
        Their sum.
    expanded : int
        States visited.
    optimal : bool
        False when the limit on states was hit: then a good cover, not surely the best.
    positions : tuple of int
        Where the blocks stand among those that were handed over.

    Examples
    --------
    >>> cover = cheapest_cover(DataflowGraph.from_uses([[], [0]]), {0b01: 1.0, 0b10: 1.0})
    >>> cover.blocks, cover.optimal
    ((1, 2), True)
    """

    blocks: tuple[int, ...]
    cost: float
    expanded: int
    optimal: bool
    positions: tuple[int, ...]


def cheapest_cover(
    graph: DataflowGraph,
    costs: Mapping[int, float],
    max_states: int = DEFAULT_MAX_STATES,
    should_stop: Callable[[], bool] | None = None,
) -> Cover | None:
    """The cheapest cover of a graph, or None if the blocks admit none.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    costs : mapping of int to float
        Seconds by block (bit mask of a convex set); ``inf`` blocks are left out. The result depends
        on nothing but these, ties included.
    max_states : int
        After so many states the search goes for the next complete cover instead of the best.
    should_stop : callable, optional
        Asked now and then; once it says yes, the search does so, too.

    Returns
    -------
    Cover or None
        None where the blocks cannot cover the graph.

    Notes
    -----
    Time is O(S B log S) for S visited states and B blocks that begin at one binding, after O(R L)
    for R rounds on the potentials and L bindings in all blocks together. S is linear in the graph
    for chains and narrow branches; at worst it is exponential in the number of disjoint blocks that
    reach over the same border of the numbering. Measured on 2 cores: networks of 200 to 600
    bindings with up to 3,000 candidates take 100 to 6,500 states and 0.01 to 0.2 s; random graphs
    with 3,000 random blocks that cross everywhere take up to 100,000 states and 20 s.

    Examples
    --------
    Three bindings in a row, each for one second, or the first two together for 1.5:

    >>> graph = DataflowGraph.from_uses([[], [0], [1]])
    >>> found = cheapest_cover(graph, {0b001: 1.0, 0b010: 1.0, 0b100: 1.0, 0b011: 1.5})
    >>> found.blocks, found.cost
    ((3, 4), 2.5)
    """
    return cheapest_of(
        graph, [Block.of(mask) for mask in costs], [*costs.values()], max_states, should_stop
    )


def cheapest_of(
    graph: DataflowGraph,
    blocks: Sequence[Block],
    costs: Sequence[float],
    max_states: int = DEFAULT_MAX_STATES,
    should_stop: Callable[[], bool] | None = None,
) -> Cover | None:
    """As :func:`cheapest_cover`, of blocks in a sequence.

    Masks of the same shape 61 bindings apart have the same hash, so that dictionaries of the
    blocks of a large graph are slow.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    blocks : sequence of Block
        Distinct convex sets.
    costs : sequence of float
        Their seconds.
    max_states, should_stop
        As for :func:`cheapest_cover`.

    Returns
    -------
    Cover or None
        None where the blocks cannot cover the graph.
    """
    usable = [position for position, cost in enumerate(costs) if cost < math.inf]
    problem = _Problem(graph, blocks, costs, sorted(usable, key=lambda p: blocks[p].mask))
    stop = should_stop or (lambda: False)
    relaxed = problem.solve(track=False, max_states=max_states, stop=stop)
    if relaxed is None or nx.is_directed_acyclic_graph(quotient(graph, relaxed.blocks)):
        return relaxed
    return problem.solve(track=True, max_states=max_states, stop=stop)


class _Problem:
    """One instance: blocks of finite cost by their positions, in the order of their masks."""

    def __init__(
        self,
        graph: DataflowGraph,
        blocks: Sequence[Block],
        costs: Sequence[float],
        positions: Sequence[int],
    ) -> None:
        self.graph = graph
        self.blocks = blocks
        self.costs = costs
        self.positions = positions
        self.through: list[list[int]] = [[] for _ in range(len(graph))]
        for position in positions:
            for index in blocks[position].members:
                self.through[index].append(position)
        self.around: dict[int, tuple[int, int]] = {}
        # What bindings from an index on use: the rest of a dependency set can be forgotten.
        self.needed = [0] * (len(graph) + 1)
        for index in reversed(range(len(graph))):
            self.needed[index] = self.needed[index + 1] | graph.preds(index)

    def solve(self, *, track: bool, max_states: int, stop: Callable[[], bool]) -> Cover | None:
        """With quick potentials if the graph is easy, else with better ones; ``track`` forbids
        cycles."""
        cover = None
        for rounds, limit in EFFORTS:
            # A cover takes as many states as it has blocks even where every step is the right one.
            states = min(max_states, max(limit, 4 * len(self.graph)) if limit else max_states)
            steps = self._steps(reduced_costs(self.costs, self.through, rounds, stop))
            cover = self._walk(steps, track=track, max_states=states, stop=stop)
            if cover is None or cover.optimal or states == max_states or stop():
                break
        return cover

    def _steps(self, reduced: Sequence[float]) -> list[list[_Step]]:
        """By the first binding of each block."""
        steps: list[list[_Step]] = [[] for _ in range(len(self.graph))]
        for position in self.positions:
            block = self.blocks[position]
            steps[block.members[0]].append((block.shape, position, reduced[position]))
        return steps

    def _walk(
        self,
        steps: Sequence[Sequence[_Step]],
        *,
        track: bool,
        max_states: int,
        stop: Callable[[], bool],
    ) -> Cover | None:
        size = len(self.graph)
        start: State = (0, 0, ())
        distance: dict[State, float] = {start: 0.0}
        came: dict[State, tuple[State, int]] = {}
        closed: set[State] = set()
        # Among equals the state that is furthest on comes first.
        heap: list[tuple[float, int, State]] = [(0.0, 0, start)]
        hurry = False
        while heap:
            *_, state = heapq.heappop(heap)
            if state in closed:
                continue
            closed.add(state)
            first, beyond, unfinished = state
            if first == size:
                return self._cover(state, came, len(closed), not hurry)
            late = len(closed) % _STATES == 0 and stop()
            if not hurry and (late or len(closed) >= max_states):
                hurry = True
                heap = [(float(key), 0, entry) for _, key, entry in heap]
                heapq.heapify(heap)
            here = distance[state]
            for shape, position, reduced in steps[first]:
                if shape & beyond:
                    continue
                covered = shape | beyond
                run = (~covered & (covered + 1)).bit_length() - 1
                frontier = first + run
                placed = self._place(unfinished, position, frontier) if track else ()
                if placed is None:
                    continue
                following: State = (frontier, covered >> run, placed)
                reached = here + reduced
                if reached < distance.get(following, math.inf):
                    distance[following] = reached
                    came[following] = (state, position)
                    key = float(-frontier) if hurry else reached
                    heapq.heappush(heap, (key, -frontier, following))
        return None

    def _place(self, unfinished: Unfinished, position: int, frontier: int) -> Unfinished | None:
        """The unfinished blocks once a block is placed, or None if that closes a cycle.

        Any cycle through it leaves it towards a block that uses its values, thus one with
        bindings beyond the first uncovered one: an unfinished block.
        """
        block = self.blocks[position].mask
        used, users = self._around(position)
        dependent = block
        for other, below in unfinished:
            if other & users:
                if below & used:
                    return None
                dependent |= below
        keep = self.needed[frontier]
        following = []
        for other, below in (*unfinished, (block, dependent)):
            if other >> frontier:
                grown = below | dependent if below & used else below
                following.append((other, grown & keep))
        return tuple(sorted(following))

    def _around(self, position: int) -> tuple[int, int]:
        """What a block uses from outside, and what uses its values there."""
        if position not in self.around:
            block = self.blocks[position].mask
            used = union_of(self.graph.preds, block) & ~block
            users = union_of(self.graph.succs, block) & ~block
            self.around[position] = used, users
        return self.around[position]

    def _cover(
        self, state: State, came: Mapping[State, tuple[State, int]], expanded: int, optimal: bool
    ) -> Cover:
        positions = []
        while state in came:
            state, position = came[state]
            positions.append(position)
        positions.reverse()
        return Cover(
            blocks=tuple(self.blocks[position].mask for position in positions),
            cost=math.fsum(self.costs[position] for position in positions),
            expanded=expanded,
            optimal=optimal,
            positions=tuple(positions),
        )
