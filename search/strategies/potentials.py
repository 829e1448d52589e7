"""Prices of bindings such that no block costs less than its bindings together."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence


def reduced_costs(
    costs: Sequence[float],
    through: Sequence[Sequence[int]],
    rounds: int,
    stop: Callable[[], bool],
) -> list[float]:
    """By position, costs less the prices of the covered bindings; all non-negative.

    One sweep of dual coordinate ascent raises each binding's price until some block through it
    is tight; where all blocks are intervals of the numbering that is optimal. ``rounds`` sweeps
    before it balance the prices where blocks have holes: each binding's price is set between
    what its cheapest and its second cheapest block allow (min-sum diffusion), in alternating
    directions. Each sweep takes time linear in the blocks' sizes together.

    Parameters
    ----------
    costs : sequence of float
        Seconds by position.
    through : sequence of sequence of int
        By binding, the positions of the blocks that hold it.
    rounds : int
        Sweeps that balance.
    stop : callable
        Whether to leave it at the sweeps that were made.

    Returns
    -------
    list of float
        By position.

    Examples
    --------
    Two bindings, each a block for one second, and both together for 1.5:

    >>> reduced_costs([1.0, 1.0, 1.5], [[0, 2], [1, 2]], 0, lambda: False)
    [0.0, 0.5, 0.0]
    """
    reduced = list(costs)
    used = [positions for positions in through if positions]
    for number in range(rounds):
        if stop():
            break
        for positions in used if number % 2 == 0 else reversed(used):
            ordered = heapq.nsmallest(2, (reduced[position] for position in positions))
            change = math.fsum(ordered) / len(ordered)
            for position in positions:
                reduced[position] -= change
    # Diffusion leaves the chosen blocks negative: first lower prices where need be, then raise.
    for sign in (-1.0, 1.0):
        for positions in used:
            slack = min(reduced[position] for position in positions)
            if slack * sign > 0:
                for position in positions:
                    reduced[position] -= slack
    return [max(0.0, value) for value in reduced]
