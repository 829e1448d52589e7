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
from collage.backends.tvm.cpu.schedules.overlapping import overlapping
from collage.backends.tvm.cpu.schedules.reductions.along_memory import (
    finish_partial,
    is_contiguous,
    neighbours,
)
from collage.backends.tvm.cpu.schedules.reductions.tails import (
    Cut,
    lanes_of,
    may_overlap,
    reduce_in_whole_vectors,
)

_LEAST = 4
"""Lanes of a vector that is worth it."""


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
    work = sum(size_of(axes_of(sch, block) or ()) for block in blocks)
    cuts = [_cut(sch, block, machine) for block in blocks]
    ends = {number: cut.lanes for number, cut in enumerate(cuts) if cut.ending}
    if ends:
        sch = s_tir.Schedule(reduce_in_whole_vectors(sch.mod["main"], ends))
        blocks = root_blocks(sch)
    *producers, last = blocks
    partials: list[Any] = []
    stages: list[Any] = []
    for number, block in enumerate(producers):
        if cuts[number].lanes:
            partial = _split_reduction(sch, block, cuts[number])
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


def _cut(sch: s_tir.Schedule, block: Any, machine: Machine) -> Cut:
    """How a reduction is cut; without lanes where a stage is none, or too short."""
    axes, stmt = axes_of(sch, block) or [], sch.get(block)
    if not any(axis.reduce for axis in axes):
        return Cut(0, 0)
    widest, own = machine.lanes(str(stmt.reads[0].source.dtype)), axes[-1].extent
    lanes, ending = lanes_of(own, widest, _LEAST)
    if ending and (len(sch.get_loops(block)) != len(axes) or not may_overlap(stmt)):
        lanes, ending = 0, False
    # Neighbours that lie one behind the other are counted through as one: 8 by 999 by sixteens.
    along = neighbours(sch, block, axes)
    joined = math.prod(axis.extent for axis in axes[-along:])
    of_all, uneven = lanes_of(joined, widest, _LEAST)
    fewer = not lanes or joined // max(of_all, 1) < joined // own * -(-own // lanes)
    if along > 1 and of_all and not uneven and fewer:
        return Cut(len(axes) - along, of_all)
    return Cut(len(axes) - 1, lanes, ending)


def _split_reduction(sch: s_tir.Schedule, block: Any, cut: Cut) -> Any:
    """Make one partial result per lane."""
    loops = sch.get_loops(block)
    lane = loops[-1]
    if not cut.ending:
        _, lane = sch.split(fuse_all(sch, loops[cut.first :]), [None, cut.lanes])
    return sch.rfactor(lane, factor_axis=len(sch.get(block).writes[0].source.shape))


def _vectorize_row(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Vectorize an elementwise stage's innermost loop inside of the row loop."""
    loops = sch.get_loops(block)[1:]
    lanes = machine.lanes(element_dtype(sch, block))
    if not loops:
        return
    # Cut by a predicate a row with a remainder takes three times as long as what LLVM makes of it.
    if loop_extent(sch, loops[-1]) % lanes == 0:
        vectorize(sch, loops[-1], lanes)
    else:
        overlapping(sch, block, loops[-1], lanes)
