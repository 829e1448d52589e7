"""Tiles of products on tensor cores: what a block of threads computes, and what a size gets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage.backends.tvm.cuda.schedules._base import Gpu
from collage.backends.tvm.cuda.schedules.wmma import MICRO

SKEW = 8
"""Elements between rows in shared memory, so that those of a column lie in several banks."""


@dataclass(frozen=True)
class Tile:
    """How a block of threads cuts its part of the product.

    Attributes
    ----------
    warps : (int, int)
        Warps along I and J.
    per_warp : (int, int)
        WMMA operations of one warp along I and J.
    depth : int
        WMMA operations along K per stage in shared memory.
    """

    warps: tuple[int, int]
    per_warp: tuple[int, int]
    depth: int = 4

    @property
    def rows(self) -> int:
        return self.warps[0] * self.per_warp[0] * MICRO

    @property
    def columns(self) -> int:
        return self.warps[1] * self.per_warp[1] * MICRO

    @property
    def result_scope(self) -> str:
        """Where results pass through on their way to the epilogue.

        TVM's storage rewriting would put float32 results in the place of a larger float16 buffer of
        the same scope, and then fail on the mixed types; results that outgrow every operand buffer
        are safe from that, and they are too large for static shared memory.
        """
        return "shared" if self.result_bytes <= 36864 else "shared.dyn"

    @property
    def result_bytes(self) -> int:
        return self.rows * self.columns * 4

    def stage_bytes(self, *, transposed: bool) -> int:
        """Of both operands in one stage in shared memory.

        Parameters
        ----------
        transposed : bool
            Whether rows of the second operand run along the sum.

        Returns
        -------
        int
            With what lies between rows.
        """
        depth = MICRO * self.depth
        skewed = self.columns * (depth + SKEW) if transposed else depth * (self.columns + SKEW)
        return 2 * (self.rows * (depth + SKEW) + skewed)

    def blocks(self, batch: int, rows: int, columns: int) -> int:
        """Blocks of threads that a product needs.

        Parameters
        ----------
        batch, rows, columns : int
            Extents of the product's result.

        Returns
        -------
        int
            Those at the edges, which the product fills in part, count as well.
        """
        return batch * math.ceil(rows / self.rows) * math.ceil(columns / self.columns)


TILES = (
    Tile((4, 4), (2, 2)),
    Tile((4, 2), (2, 2)),
    Tile((2, 4), (2, 2)),
    Tile((2, 2), (2, 2), depth=2),
    Tile((2, 2), (2, 1)),
    Tile((2, 2), (1, 2)),
    Tile((2, 2), (1, 1)),
    Tile((1, 4), (1, 1)),
)
"""Candidates, large ones first: they read each operand less often."""

NARROW = (Tile((4, 1), (2, 1), depth=2), Tile((4, 1), (1, 1)))
"""Those for results with as many columns as one operation has, or fewer."""


def choose_tile(batch: int, rows: int, columns: int, gpu: Gpu) -> Tile:
    """The largest tile that fills the chip without much padding, else the one with most blocks.

    Parameters
    ----------
    batch, rows, columns : int
        Extents of the product's result.
    gpu : Gpu
        Its multiprocessors count.

    Returns
    -------
    Tile
        One of :data:`TILES`, or of :data:`NARROW`.
    """
    tiles = TILES if columns > MICRO else NARROW

    def padded(tile: Tile) -> float:
        whole = math.ceil(rows / tile.rows) * tile.rows * math.ceil(columns / tile.columns)
        return whole * tile.columns / (rows * columns)

    least = min(padded(tile) for tile in tiles)
    fitting = [tile for tile in tiles if padded(tile) <= 1.34 * least]
    for tile in fitting:
        if tile.blocks(batch, rows, columns) >= gpu.num_sms:
            return tile
    return max(fitting, key=lambda tile: tile.blocks(batch, rows, columns))
