"""The register tile that convolutions and matrix products share.

One step of the kernel multiplies ``rows`` scalars, each broadcast to a vector, with ``vectors``
vectors and adds to ``rows * vectors`` accumulators that stay in registers over the whole reduction
(the scheme of GotoBLAS and BLIS micro-kernels). TVM keeps accumulators in registers when they are a
local buffer that is only indexed by constants: hence every loop over the tile is unrolled.

Long sums are cut: the error grows with the number of terms that are added one by one, to several
times that of PyTorch's kernels at ten thousand. Each piece is added up in registers from zero, and
then to the result in memory: one addition for hundreds of multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import axes_of, loop_extent
from collage.backends.tvm.common.machine import Machine

_SHORT_SUM = 768
"""Terms that may be added one by one: at most twice the error of PyTorch's kernels."""

_LONGEST_PIECE = 384
"""Terms of a piece. (Two pieces of a sum, which LLVM unrolls, took a product a third longer.)"""

_ROW_AXIS = 3
"""Of the raw result, in tiles: two axes and a batch or picture come before its rows."""

_SHAPES_32_REGISTERS = ((8, 2), (16, 1), (4, 4))
_SHAPES_16_REGISTERS = ((4, 2), (4, 3), (6, 2))
"""No (8, 1): nine loads for eight multiply-adds took twice the time of the others on Zen 3."""


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


def own_loops(sch: s_tir.Schedule, block: Any) -> tuple[list[Any], list[Any]]:
    """A block's own loops, one for each of its axes and in their order: spatial ones, reduced ones.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        Not scheduled yet, or just moved into other loops.

    Returns
    -------
    tuple[list[LoopRV], list[LoopRV]]
        From the outermost on; loops that the block was moved into are in neither.
    """
    axes = axes_of(sch, block) or []
    loops = list(zip(axes, sch.get_loops(block)[-len(axes) :], strict=True))
    return [loop for a, loop in loops if not a.reduce], [loop for a, loop in loops if a.reduce]


def cut_sum(sch: s_tir.Schedule, block: Any) -> Any | None:
    """Cut a reduction's outermost axis so that no piece adds up too many terms one by one.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    block : SBlockRV
        The reduction, not scheduled yet; it adds up the pieces afterwards.

    Returns
    -------
    SBlockRV or None
        The stage that computes the pieces; None where the sum is short enough.
    """
    first, *others = own_loops(sch, block)[1]
    extent = loop_extent(sch, first)
    points = math.prod(loop_extent(sch, loop) for loop in others)
    if extent * points <= _SHORT_SUM:
        return None
    wanted = min(extent, max(1, _LONGEST_PIECE // points))
    # Pieces are equal. Where no divisor is near, longer ones: short ones would cost time.
    length = next(n for n in range(wanted, 0, -1) if extent % n == 0)
    if 4 * length < wanted:
        length = next(n for n in range(wanted, extent + 1) if extent % n == 0)
    if length == extent:
        return None
    pieces, _ = sch.split(first, [None, length])
    return sch.rfactor(pieces, factor_axis=0)


def schedule_tile(
    sch: s_tir.Schedule,
    block: Any,
    piece: Any | None,
    tile: Tile,
    unrolled: Callable[[Sequence[Any]], Sequence[Any]] = lambda _: (),
) -> None:
    """Turn a reduction block's inner loops into the register kernel.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    block : SBlockRV
        The reduction, moved to where a task computes it. Its rows are those of its axes (at most
        ``tile.rows``), its columns the last one, which may be shorter than the tile when not all
        columns are used; it is then run whole all the same, because the buffers behind it are
        whole. It is two blocks afterwards, one that clears the result.
    piece : SBlockRV or None
        What :func:`cut_sum` made of it.
    tile : Tile
        Its columns are vectors, its rows are unrolled.
    unrolled : callable
        Which of the reduction loops, outermost first, are unrolled.
    """
    spatial, reduction = own_loops(sch, block)
    row, column = spatial.pop(_ROW_AXIS), spatial.pop()
    sch.reorder(*spatial, *reduction, row, column)
    if piece is None:
        accumulator = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(accumulator, spatial[-1], preserve_unit_loops=True)
        _fill_tile(sch, row, column, tile)
        for loop in unrolled(reduction):
            sch.unroll(loop)
        _fill_columns(sch, sch.get_loops(accumulator)[-1], tile)
    else:
        _fill_tile(sch, row, column, tile)
        sch.compute_at(piece, reduction[0], preserve_unit_loops=True)
        sch.set_scope(piece, 0, "local")
        _schedule_piece(sch, piece, tile, unrolled)
    _clear_first(sch, block, reduction[0], tile)


def _schedule_piece(
    sch: s_tir.Schedule,
    piece: Any,
    tile: Tile,
    unrolled: Callable[[Sequence[Any]], Sequence[Any]],
) -> None:
    """The register kernel of a piece, which stands where it is added to the result."""
    spatial, reduction = own_loops(sch, piece)
    row, column = spatial[1 + _ROW_AXIS], spatial[-1]  # the axis of pieces comes first
    sch.reorder(*reduction, row, column)
    _fill_tile(sch, row, column, tile)
    for loop in unrolled(reduction):
        sch.unroll(loop)
    _clear_first(sch, piece, reduction[0], tile)


def _fill_tile(sch: s_tir.Schedule, row: Any, column: Any, tile: Tile) -> None:
    sch.unroll(row)
    _fill_columns(sch, column, tile)


def _clear_first(sch: s_tir.Schedule, block: Any, loop: Any, tile: Tile) -> None:
    """Clear a tile before a loop; the block is two blocks then, which no other primitive takes."""
    init = sch.decompose_reduction(block, loop)
    *others, lane = sch.get_loops(init)
    outer = {sch.get(other).loop_var for other in sch.get_loops(block)}
    for other in others:
        if sch.get(other).kind == tirx.ForKind.SERIAL and sch.get(other).loop_var not in outer:
            sch.unroll(other)
    if sch.get(lane).kind == tirx.ForKind.SERIAL and tile.lanes > 1:
        sch.vectorize(lane)


def _fill_columns(sch: s_tir.Schedule, column: Any, tile: Tile) -> None:
    """Run a column loop over the whole tile, in vectors."""
    vectors, lane = sch.split(column, [tile.vectors, tile.lanes], disable_predication=True)
    sch.unroll(vectors)
    if tile.lanes > 1:
        sch.vectorize(lane)
