"""Softmax, layer normalization and other chains of reductions along a tensor's last axes.

All stages of one row run together while the row is in cache; rows run in parallel. A reduction
along contiguous elements is split into one partial result per vector lane (``rfactor``), because
adding up in another order is not something LLVM may do by itself.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import (
    PARALLEL_MIN_WORK,
    Axis,
    axes_of,
    element_dtype,
    fuse_all,
    loop_extent,
    root_blocks,
    size_of,
    vectorize,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import inline_stages, is_elementwise, reads_indices
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules.reduction import (
    finish_partial,
    is_contiguous,
    neighbours,
)


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel whose reductions all run along the same trailing axes.

    Parameters
    ----------
    func, machine
        A kernel such as a softmax, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled row by row, or why its stages have no rows in common.
    """
    sch = s_tir.Schedule(func)
    inline_stages(sch)
    blocks = root_blocks(sch)
    lead = _lead_axes(sch, blocks, machine)
    if isinstance(lead, Refusal):
        return lead
    *producers, last = blocks
    work = sum(size_of(axes_of(sch, block) or ()) for block in blocks)
    partials: list[Any] = []
    stages: list[Any] = []
    for block in producers:
        axes = axes_of(sch, block) or []
        if any(axis.reduce for axis in axes):
            partial = _split_reduction(sch, block, axes, machine)
            if partial is not None:
                stages.append(partial)
                partials.append(partial)
        stages.append(block)

    loops = sch.get_loops(last)
    row = fuse_all(sch, loops[:lead])
    for block in reversed(stages):
        sch.compute_at(block, row, preserve_unit_loops=True)
    for block in [*stages, last]:
        axes = axes_of(sch, block) or []
        if not any(axis.reduce for axis in axes):
            _vectorize_row(sch, block, machine)
    if work >= PARALLEL_MIN_WORK and loop_extent(sch, row) > 1 and machine.num_threads > 1:
        sch.parallel(row)
    for partial in partials:
        finish_partial(sch, partial)
    return sch.mod["main"]


def _lead_axes(sch: s_tir.Schedule, blocks: list[Any], machine: Machine) -> int | Refusal:
    """How many leading axes all stages share, or why the kernel is not row by row."""
    counts, extents = set(), []
    for block in blocks:
        axes = axes_of(sch, block)
        if axes is None:
            return Refusal("a stage has axes that are not static and independent")
        if reads_indices(sch.get(block)):
            return Refusal("a stage reads indices")
        spatial = [axis for axis in axes if not axis.reduce]
        if len(spatial) < len(axes):
            if [axis.reduce for axis in axes] != sorted(axis.reduce for axis in axes):
                return Refusal("a reduction's axes are not last")
            trailing = len(spatial)
            while trailing and spatial[trailing - 1].extent == 1:
                trailing -= 1
            counts.add(trailing)
            extents.append([axis.extent for axis in spatial[:trailing]])
            if axes[-1].extent < machine.lanes("float32"):
                return Refusal("a reduction is shorter than a vector")
            if not is_contiguous(sch, block, axes[-1]):
                return Refusal("a reduction does not run along contiguous elements")
    if not counts:
        return OTHER_KIND
    if len(counts) > 1:
        return Refusal("its reductions have different numbers of outer axes")
    lead = counts.pop()
    last_axes = axes_of(sch, blocks[-1]) or []
    if any(axis.reduce for axis in last_axes) or not is_elementwise(sch.get(blocks[-1])):
        return Refusal("its last stage is a reduction")
    wanted = [axis.extent for axis in last_axes[:lead]]
    if len(sch.get_output_blocks("root")) != 1 or any(e != wanted for e in extents):
        return Refusal("its stages differ in their outer axes")
    if lead == 0 and (not last_axes or last_axes[0].extent > 1):
        return Refusal("it is a single row")
    return max(lead, 1)


def _split_reduction(
    sch: s_tir.Schedule, block: Any, axes: list[Axis], machine: Machine
) -> Any | None:
    """Make one partial result per lane; None where the axis does not divide into vectors.

    (A remainder would need a predicate, which ``compute_at`` drops on such a stage.)
    """
    stmt = sch.get(block)
    widest = machine.lanes(str(stmt.reads[0].source.dtype))
    loops, extent = sch.get_loops(block), axes[-1].extent
    if extent % widest:
        # Neighbours that lie one behind the other are counted through as one: 8 by 999 by sixteens.
        along = neighbours(sch, block, axes)
        joined = math.prod(axis.extent for axis in axes[-along:])
        if along > 1 and _fitting(joined, widest) > _fitting(extent, widest):
            loops[-along:] = [sch.fuse(*loops[-along:])]
            extent = joined
    lanes = _fitting(extent, widest)
    if not lanes or extent < 2 * lanes:
        return None
    _, lane = sch.split(loops[-1], [None, lanes])
    return sch.rfactor(lane, factor_axis=len(stmt.writes[0].source.shape))


def _fitting(extent: int, widest: int) -> int:
    """The most lanes, down to four, that divide an extent; 0 where none do."""
    return next((n for n in range(widest, 3, -1) if extent % n == 0), 0)


def _vectorize_row(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Vectorize an elementwise stage's innermost loop inside of the row loop."""
    loops = sch.get_loops(block)[1:]
    lanes = machine.lanes(element_dtype(sch, block))
    # LLVM makes vectors of a row with a remainder: cut by a predicate it takes three times as long.
    if loops and loop_extent(sch, loops[-1]) % lanes == 0:
        vectorize(sch, loops[-1], lanes)
