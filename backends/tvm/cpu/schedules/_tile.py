"""The register tile that convolutions and matrix products share.

One step of the kernel multiplies ``rows`` scalars, each broadcast to a vector, with ``vectors``
vectors and adds to ``rows * vectors`` accumulators that stay in registers over the whole reduction
(the scheme of GotoBLAS and BLIS micro-kernels). TVM keeps accumulators in registers when they are a
local buffer that is only indexed by constants: hence every loop over the tile is unrolled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.machine import Machine

_SHAPES_32_REGISTERS = ((8, 2), (16, 1), (4, 4))
_SHAPES_16_REGISTERS = ((4, 2), (4, 3), (6, 2), (8, 1))


@dataclass(frozen=True)
class Tile:
    """Accumulators of one kernel: ``rows`` times ``vectors`` registers of ``lanes`` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Elements along the vectorized axis."""
        return self.vectors * self.lanes

    @property
    def cost(self) -> float:
        """Relative time of one step per multiply-add: vector loads beside the arithmetic count.

        Weights of loads and broadcasts are fitted to measurements on Zen 4; fewer than eight
        independent accumulators do not hide the latency of a multiply-add.
        """
        accumulators = self.rows * self.vectors
        step = max(accumulators + 0.5 * self.vectors + 0.1 * self.rows, 8.0)
        return step / accumulators


def tiles(machine: Machine, dtype: str) -> list[Tile]:
    """Tiles that fit the machine's registers.

    Parameters
    ----------
    machine : Machine
        Its vector registers count.
    dtype : str
        Of the elements.

    Returns
    -------
    list[Tile]
        A few shapes, which leave registers for the vectors and the scalars that are multiplied.
    """
    lanes = machine.lanes(dtype)
    shapes = _SHAPES_32_REGISTERS if machine.num_registers >= 32 else _SHAPES_16_REGISTERS
    return [Tile(rows, vectors, lanes) for rows, vectors in shapes]


def tiles_of_few_rows(machine: Machine, dtype: str, rows: int) -> list[Tile]:
    """Tiles for exactly ``rows`` rows, as wide as the registers allow.

    Parameters
    ----------
    machine, dtype
        As :func:`tiles` takes them.
    rows : int
        Of every tile.

    Returns
    -------
    list[Tile]
        From the widest, of at most eight vectors, to the one of a single vector.
    """
    lanes = machine.lanes(dtype)
    room = machine.num_registers * 3 // 4
    widest = max(1, min(8, room // rows))
    return [Tile(rows, vectors, lanes) for vectors in range(widest, 0, -1)]


def schedule_tile(
    sch: s_tir.Schedule,
    block: Any,
    tile: Tile,
    outer: Sequence[Any],
    reduction: Sequence[Any],
    row: Any,
    column: Any,
    unroll: Iterable[Any] = (),
) -> None:
    """Turn a reduction block's inner loops into the register kernel.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    block : SBlockRV
        The reduction; it is two blocks afterwards, one that clears the accumulators.
    tile : Tile
        Its columns are vectors, its rows are unrolled.
    outer : loops
        The block's remaining spatial loops, outermost first; the last one walks over tiles.
    reduction : loops
        The reduction loops, outermost first.
    row, column : loops
        The loops over the tile's rows (at most ``tile.rows``) and columns. The column loop may be
        shorter than the tile when not all columns are used; it is then run whole all the same,
        because the buffers behind it are whole.
    unroll : loops
        Reduction loops to unroll.
    """
    accumulator = sch.cache_write(block, 0, "local")
    sch.reorder(*outer, *reduction, row, column)
    depth = len(sch.get_loops(block)) - len(reduction) - 2
    sch.reverse_compute_at(accumulator, outer[-1], preserve_unit_loops=True)
    sch.unroll(row)
    _fill_columns(sch, column, tile)
    for loop in unroll:
        sch.unroll(loop)
    _fill_columns(sch, sch.get_loops(accumulator)[-1], tile)
    # Last: after it the block is two blocks, which no other primitive takes.
    init = sch.decompose_reduction(block, reduction[0])
    *unrolled, lane = sch.get_loops(init)[depth:]
    for loop in unrolled:
        if sch.get(loop).kind == tirx.ForKind.SERIAL:
            sch.unroll(loop)
    if sch.get(lane).kind == tirx.ForKind.SERIAL and tile.lanes > 1:
        sch.vectorize(lane)


def _fill_columns(sch: s_tir.Schedule, column: Any, tile: Tile) -> None:
    """Run a column loop over the whole tile, in vectors."""
    vectors, lane = sch.split(column, [tile.vectors, tile.lanes], disable_predication=True)
    sch.unroll(vectors)
    if tile.lanes > 1:
        sch.vectorize(lane)
