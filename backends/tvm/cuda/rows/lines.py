"""The lines of a tensor along an axis, and how threads share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

WARP = 32
MOST_WARPS = 32
MULTIPROCESSORS = 132
"""To fill; TVM's targets do not say how many there are, so a large chip's number."""

_ITEMS = 8
"""Elements of a line that a thread has at once, at most: all are loaded before any is used."""

_LONG, _CHUNK = 1 << 14, 2048
"""Lines of so many elements are cut where they are too few to fill the device, into chunks of no
fewer than so many."""


@dataclass(frozen=True)
class Lines:
    """Lines along an axis, numbered as the other axes have them.

    Attributes
    ----------
    count, length : int
        How many, and how long.
    step : int
        From one element to its neighbour.
    """

    count: int
    length: int
    step: int

    @classmethod
    def along(cls, shape: Sequence[int], axis: int) -> Self:
        """Those of a tensor.

        Parameters
        ----------
        shape : sequence of int
            Of some elements.
        axis : int
            Not negative.

        Returns
        -------
        Lines
            As many as there are elements in the other axes.
        """
        step = math.prod(shape[axis + 1 :])
        return cls(math.prod(shape) // shape[axis], shape[axis], step)


@dataclass(frozen=True)
class Share:
    """How a scan's threads are shared out.

    Attributes
    ----------
    columns : int
        Lines of a warp, a power of two.
    items : int
        Elements of a thread.
    warps : int
        Of a block.
    joint : bool
        Whether the warps of a block have the same lines.
    chunks : int
        Of each line, which have blocks of their own.
    """

    columns: int
    items: int
    warps: int
    joint: bool
    chunks: int

    @classmethod
    def of(cls, lines: Lines) -> Self:
        """A block for a few lines, or many blocks for each of few."""
        columns = _columns(lines)
        segments = WARP // columns
        if lines.length <= segments * _ITEMS and (lines.step > 1 or lines.length <= 4 * WARP):
            items = math.ceil(lines.length / segments)
            return cls(columns, items, 4, joint=False, chunks=1)
        chunks = 1
        if lines.length >= _LONG:
            wanted = math.ceil(2 * MULTIPROCESSORS * columns / lines.count)
            chunks = max(1, min(wanted, lines.length // _CHUNK))
        own = math.ceil(lines.length / chunks)
        least = 4 if lines.step == 1 else _ITEMS
        warps = min(MOST_WARPS, math.ceil(own / (segments * least)))
        turns = math.ceil(own / (warps * segments * _ITEMS))
        items = math.ceil(own / (turns * warps * segments))
        return cls(columns, items, warps, joint=True, chunks=chunks)

    def groups(self, lines: Lines) -> int:
        """Blocks that have all lines, or a chunk of each."""
        own = self.columns if self.joint else self.columns * self.warps
        return math.ceil(lines.count / own)


def _columns(lines: Lines) -> int:
    """As many as fill the memory's sectors, with enough blocks all the same; of rows, which lie one
    behind the other, as many as leave no lane idle."""
    if lines.step == 1:
        lanes = 1
        while lanes < WARP and lanes * 4 < lines.length:
            lanes *= 2
        return WARP // lanes
    columns = WARP
    while columns > _ITEMS and lines.count < columns * MULTIPROCESSORS:
        columns //= 2
    return columns
