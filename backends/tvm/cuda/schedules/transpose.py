"""Kernels that read along one axis and write along another, by tiles in shared memory.

Changes of layout, alone or with elementwise work around them. Read element by element, such an
operand costs a sector of memory for each; a block of threads reads a tile along the operand's rows
and writes it along the result's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import (
    Axis,
    axes_of,
    buffer_stride,
    fuse_all,
    loop_extent,
    root_blocks,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import has_branches, reads_indices
from collage.backends.tvm.cuda.schedules._base import WARP, Gpu, dtype_bytes
from collage.backends.tvm.cuda.schedules._vector import (
    guarded_like,
    in_a_row,
    inline_maps,
    is_map,
    store_wide,
    vectorize_innermost,
)

_ROWS = 8
"""Rows of threads in a block."""

_LEAST = 16
"""Places along either axis below which a tile would be mostly empty."""

_WORD_BYTES = 4
"""What neighbouring threads read at once: narrower elements go in pairs, or four together."""


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel without reductions whose operand lies across its result.

    Parameters
    ----------
    func, gpu
        A kernel such as a permutation of axes, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled through shared memory, or :data:`OTHER_KIND`.
    """
    sch = s_tir.Schedule(func)
    for block in root_blocks(sch):
        axes = axes_of(sch, block)
        if axes is None or any(axis.reduce for axis in axes) or not is_map(sch.get(block)):
            return OTHER_KIND
    inline_maps(sch)
    blocks = root_blocks(sch)
    if len(blocks) != 1:
        return OTHER_KIND
    (block,) = blocks
    axes = axes_of(sch, block) or []
    stmt = sch.get(block)
    if len(axes) < 2 or has_branches(stmt) or reads_indices(stmt):
        return OTHER_KIND
    last = axes[-1]
    across = [region for region in stmt.reads if _crosses(region, axes) is not None]
    if not across or last.extent < _LEAST or not in_a_row(stmt.writes[0], last.var):
        return OTHER_KIND
    number = _crosses(across[0], axes)
    assert number is not None
    above = _above(across[0], axes, number)
    side = axes[number].extent * (axes[above].extent if above is not None else 1)
    if side < _LEAST:
        return OTHER_KIND
    widest = max(dtype_bytes(region.source) for region in [*across, *stmt.writes])
    lanes = max(1, _WORD_BYTES // widest)
    while axes[number].extent % lanes or last.extent % lanes:
        lanes //= 2
    same = [r for r in across if (_crosses(r, axes), _above(r, axes, number)) == (number, above)]
    stored = _tile(sch, block, (number, above), [region.source for region in same], lanes)
    func = sch.mod["main"]
    return guarded_like(func, stored, stmt.name_hint) if stored else func


def _crosses(region: Any, axes: Sequence[Axis]) -> int | None:
    """The axis along which an operand's elements lie side by side, where it is not the last."""
    if buffer_stride(region, axes[-1].var) in (None, 0, 1):
        return None
    found = (n for n, axis in enumerate(axes[:-1]) if in_a_row(region, axis.var))
    return next((n for n in found if axes[n].extent > 1), None)


def _above(region: Any, axes: Sequence[Axis], number: int) -> int | None:
    """The axis whose steps are whole rows along a short one: their places are one row together."""
    row = axes[number].extent
    if row >= WARP:
        return None
    found = (n for n, axis in enumerate(axes[:-1]) if buffer_stride(region, axis.var) == row)
    return next((n for n in found if n < number and axes[n].extent > 1), None)


def _tile(
    sch: s_tir.Schedule,
    block: Any,
    numbers: tuple[int, int | None],
    sources: Sequence[Any],
    lanes: int,
) -> str | None:
    """Bind a stage's loops; ``numbers`` are of the axis along operands' rows, and the one above.

    The answer is the name of the stage that stores, where there is one.
    """
    side = WARP * lanes
    number, above = numbers
    loops = list(sch.get_loops(block))
    last, column = sch.split(loops[-1], [None, side])
    others = [loop for n, loop in enumerate(loops[:-1]) if n not in numbers]
    if above is None:
        outer, inner = sch.split(loops[number], [None, side])
        inside = [inner]
    else:
        rows = max(1, side // loop_extent(sch, loops[number]))
        outer, inner = sch.split(loops[above], [None, rows])
        inside = [inner, loops[number]]
    sch.reorder(*others, outer, last, *inside, column)
    tile = fuse_all(sch, [*others, outer, last])
    sch.bind(tile, "blockIdx.x")
    for source in sources:
        reads = list(sch.get(block).reads)
        index = next(i for i, region in enumerate(reads) if region.source.same_as(source))
        copy = sch.cache_read(block, index, "shared", [block])
        sch.compute_at(copy, tile, preserve_unit_loops=True)
        # Columns of a tile would lie in one bank of the memory.
        sch.storage_align(copy, 0, axis=-2, factor=side, offset=lanes)
        _fill(sch, copy, len(inside), lanes)
    _, row = sch.split(fuse_all(sch, inside), [None, _ROWS])
    thread, lane = sch.split(column, [WARP, lanes])
    sch.bind(row, "threadIdx.y")
    sch.bind(thread, "threadIdx.x")
    if lanes == 1:
        return None
    sch.unroll(lane)
    return store_wide(sch, block, thread, lanes)


def _fill(sch: s_tir.Schedule, copy: Any, along: int, lanes: int) -> None:
    """Read a tile along its rows, which are its last ``along`` axes, by all threads."""
    loops = list(sch.get_loops(copy))[1:]
    rows, columns = fuse_all(sch, loops[:-along]), fuse_all(sch, loops[-along:])
    _, row = sch.split(rows, [None, _ROWS])
    _, thread, _ = sch.split(columns, [None, WARP, lanes])
    sch.bind(row, "threadIdx.y")
    sch.bind(thread, "threadIdx.x")
    if lanes > 1:
        vectorize_innermost(sch, copy, lanes)
