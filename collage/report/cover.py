"""The cheapest way to cover a set of operators with measured candidates.

The report compares like with like: a candidate against the cheapest cover of the same operators.
This is the search's own question (Dijkstra over covered sets) on a small region, asked again after
the fact, so it stays apart from the search: it must explain what was measured, not search anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_STATES = 200_000
"""Covered sets looked at for one report; past it, covers count as unknown."""


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
        self._states_left = max_states

    @property
    def exhausted(self) -> bool:
        """Whether a question went unanswered because there were too many covered sets."""
        return self._states_left <= 0

    def cheapest(self, region: int) -> Cover | None:
        """The cheapest cover of exactly ``region``, or None when the pieces allow none."""
        self._solve(region)
        if region not in self._best or math.isinf(self._best[region][0]):
            return None
        pieces = []
        while region:
            piece = self._best[region][1]
            assert piece is not None
            pieces.append(piece)
            region &= ~piece.nodes
        return Cover(tuple(pieces))

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
