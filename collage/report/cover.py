"""The cheapest way to cover a set of operators with measured candidates.

The report compares like with like: a candidate against the cheapest cover of the same operators.
This is the search's own question (Dijkstra over covered sets) on a small region, asked again after
the fact, so it stays apart from the search: it must explain what was measured, not search anew.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_STATES = 200_000
"""Covered sets looked at for one report; past it, covers count as unknown."""

SMALL_REST = 12
"""Nodes left over by a piece, up to which their cover is looked for on its own."""


@dataclass(frozen=True)
class Piece:
    """A measured candidate: a bit set of nodes and what it costs."""

    nodes: int
    backend: str
    median_sec: float
    spread_sec: float


@dataclass(frozen=True)
class Cover:
    """Disjoint pieces over a set of nodes; spreads are added as independent errors."""

    pieces: tuple[Piece, ...]

    @property
    def median_sec(self) -> float:
        return math.fsum(piece.median_sec for piece in self.pieces)

    @property
    def spread_sec(self) -> float:
        return math.sqrt(math.fsum(piece.spread_sec**2 for piece in self.pieces))


def mask_of(nodes: Iterable[int]) -> int:
    """The bit set of some indices."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: int) -> list[int]:
    """The indices in a bit set, ascending."""
    return [i for i, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]


@dataclass(frozen=True)
class _Start:
    """A rest of a region, and the cheapest pieces that lead to it."""

    rest: int
    cost_sec: float
    before: tuple[Piece, ...]


class CoverFinder:
    """Cheapest exact covers out of one list of pieces; sub-results are shared between questions.

    Parameters
    ----------
    pieces : sequence of Piece
        Only the cheapest of several with the same nodes is kept.
    max_states : int
        Covered sets to look at before giving up; :attr:`exhausted` tells.
    """

    def __init__(self, pieces: Sequence[Piece], max_states: int = MAX_STATES) -> None:
        cheapest: dict[int, Piece] = {}
        for piece in pieces:
            known = cheapest.get(piece.nodes)
            if known is None or piece.median_sec < known.median_sec:
                cheapest[piece.nodes] = piece
        self._by_lowest: dict[int, list[Piece]] = {}
        for piece in cheapest.values():
            self._by_lowest.setdefault(piece.nodes & -piece.nodes, []).append(piece)
        # Rest of a region -> cost of its cheapest cover and the piece that covers its lowest node.
        self._best: dict[int, tuple[float, Piece | None]] = {0: (0.0, None)}
        self._ways_to: dict[int, dict[int, _Start]] = {}
        self._states_left = max_states

    def cheapest(self, region: int) -> Cover | None:
        """The cheapest cover of exactly ``region``, or None when the pieces allow none."""
        self._solve(region)
        if region not in self._best or math.isinf(self._best[region][0]):
            return None
        return Cover(tuple(self._pieces_of(region)))

    def cheapest_with(self, piece: Piece, region: int) -> Cover | None:
        """The cheapest cover of ``region`` that holds ``piece``.

        Parameters
        ----------
        piece : Piece
            Inside the region.
        region : int
            Bit set of nodes.

        Returns
        -------
        Cover or None
            None when there is none, or none was found within the limit on states.
        """
        rest = region & ~piece.nodes
        if rest.bit_count() <= SMALL_REST:
            cover = self.cheapest(rest)
            return Cover((piece, *cover.pieces)) if cover else None
        # Asking for each piece's rest anew would visit the region's covered sets once per piece.
        starts = self._starts(region)
        if piece.nodes not in starts:
            return None
        after = starts[piece.nodes].rest & ~piece.nodes
        return Cover((piece, *starts[piece.nodes].before, *self._pieces_of(after)))

    def _starts(self, region: int) -> dict[int, _Start]:
        """For every piece's nodes, the best place in a cover of ``region`` to use them.

        A cover takes its pieces in the order of their lowest nodes, so it is a path from the region
        to the empty set. A first pass finds the cheapest way from the region to every rest on
        such a path, and what each rest then costs is known from :meth:`cheapest`.
        """
        if region in self._ways_to:
            return self._ways_to[region]
        found = self._ways_to.setdefault(region, {})
        self._solve(region)
        if region not in self._best:
            return found
        ways: dict[int, _Start] = {region: _Start(region, 0.0, ())}
        # Rests only shrink, so the largest one left cannot be reached more cheaply any more.
        queue = [(-region.bit_count(), region)]
        total_sec: dict[int, float] = {}
        while queue:
            rest = heapq.heappop(queue)[1]
            way = ways[rest]
            for piece in self._by_lowest.get(rest & -rest, ()):
                after = rest & ~piece.nodes
                if piece.nodes & ~rest or math.isinf(self._best[after][0]):
                    continue
                others_sec = way.cost_sec + self._best[after][0]
                if others_sec < total_sec.get(piece.nodes, math.inf):
                    total_sec[piece.nodes] = others_sec
                    found[piece.nodes] = way
                reached_sec = way.cost_sec + piece.median_sec
                if after and (after not in ways or reached_sec < ways[after].cost_sec):
                    if after not in ways:
                        heapq.heappush(queue, (-after.bit_count(), after))
                    ways[after] = _Start(after, reached_sec, (*way.before, piece))
        return found

    def _pieces_of(self, region: int) -> list[Piece]:
        pieces = []
        while region:
            piece = self._best[region][1]
            assert piece is not None
            pieces.append(piece)
            region &= ~piece.nodes
        return pieces

    def _solve(self, region: int) -> None:
        # Depth first with a stack of our own: a region may hold more nodes than Python's recursion.
        stack = [region]
        while stack:
            rest = stack[-1]
            if rest in self._best:
                stack.pop()
                continue
            fitting = [p for p in self._by_lowest.get(rest & -rest, ()) if not p.nodes & ~rest]
            open_ = [rest & ~p.nodes for p in fitting if rest & ~p.nodes not in self._best]
            if open_:
                if self._states_left <= 0:
                    return
                self._states_left -= len(open_)
                stack.extend(open_)
                continue
            costs = [(p.median_sec + self._best[rest & ~p.nodes][0], p) for p in fitting]
            self._best[rest] = min(costs, key=lambda c: c[0]) if costs else (math.inf, None)
            stack.pop()
