"""How a recurrent layer's work is cut, and its weights laid out for that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from collage.backends.relax.recurrent.operator import Recurrence


@dataclass(frozen=True)
class Blocking:
    """How the work is cut.

    Attributes
    ----------
    columns : int
        Of the state, in a block; at most as many as it has.
    rows : int
        Of the batch, in a task; at most as many as it has.
    packed : bool
        Whether weights lie as :func:`pack_weights` lays them.
    shared_steps : bool
        Whether the blocks of one step run on all threads, and tasks one after another.
    """

    columns: int
    rows: int
    packed: bool = False
    shared_steps: bool = False


def pack_weights(weights: np.ndarray, recurrence: Recurrence, columns: int) -> np.ndarray:
    """Weights in the order in which they are read.

    Parameters
    ----------
    weights : ndarray
        ``(directions, hidden, gates * hidden)``.
    recurrence : Recurrence
        Whose they are.
    columns : int
        Of a block.

    Returns
    -------
    ndarray
        ``(directions, blocks, parts, hidden, gates of the part, columns)``, flat; a GRU that resets
        before its product has two parts, others one.

    Examples
    --------
    >>> one = Recurrence("rnn_tanh", "forward", 3, 1, 3, "float32", False)
    >>> pack_weights(np.arange(9.0).reshape(1, 3, 3), one, 2)
    array([0., 1., 3., 4., 6., 7., 1., 2., 4., 5., 7., 8.])
    """
    hidden, gates = recurrence.hidden, recurrence.gates
    by_gate = weights.reshape(len(weights), hidden, gates, hidden)
    pieces = []
    for direction in range(len(weights)):
        for part in parts(recurrence):
            for start in _starts(hidden, columns):
                piece = by_gate[direction, :, part[0] : part[-1] + 1, start : start + columns]
                pieces.append(np.ascontiguousarray(piece).reshape(-1))
    return np.concatenate(pieces)


def _starts(extent: int, block: int) -> list[int]:
    return [min(i * block, extent - block) for i in range(math.ceil(extent / block))]


def parts(recurrence: Recurrence) -> tuple[tuple[int, ...], ...]:
    """Gates that are multiplied by the same state: a GRU's last one by what it has reset."""
    return ((0, 1), (2,)) if recurrence.cell == "gru" else (tuple(range(recurrence.gates)),)
