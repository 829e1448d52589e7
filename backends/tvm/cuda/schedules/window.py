"""Pools, depthwise and grouped convolutions: each thread sums the windows of a few outputs.

The reduction runs serially in registers. Along the axis that lies in memory element by element
(channels, in NHWC) a thread takes as many outputs as a wide load holds.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.gpu.matmul import detect_iter_traits

from collage.backends.tvm.common.blocks import axes_of, fuse_all, root_blocks, size_of
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import (
    has_branches,
    is_elementwise,
    reads_in_order,
    reads_indices,
)
from collage.backends.tvm.cuda.schedules._base import Gpu
from collage.backends.tvm.cuda.schedules._vector import (
    in_a_row,
    inline_maps,
    lanes_of,
    load_wide,
    spatial_axes,
    split_lanes,
    store_wide,
    vectorize_innermost,
)
from collage.backends.tvm.cuda.schedules.elementwise import bind_threads

_LONGEST_REDUCTION = 512
"""Terms that one thread may sum: longer reductions are shared between threads."""

_SHORT_REDUCTION = 64
"""Terms that one thread sums even where there are few results."""

_LONGEST_UNROLLED = 8

_MOST_LANES = 4
"""Accumulators per thread; more would leave too few threads in the small planes of deep layers."""

_LEAST_THREADS = 128
"""Threads per multiprocessor below which threads take fewer results each."""


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel with one short reduction, elementwise stages before and after it.

    Parameters
    ----------
    func, gpu
        A kernel such as a pool, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, a thread for each few results; or why not.
    """
    sch = s_tir.Schedule(func)
    if any(axes_of(sch, block) is None for block in root_blocks(sch)):
        return Refusal("a stage has axes that are not static and independent")
    reductions = [b for b in root_blocks(sch) if any(a.reduce for a in axes_of(sch, b) or [])]
    if len(reductions) != 1:
        return OTHER_KIND
    sums = reductions[0]
    refusal = _is_unfit(sch, sums, gpu)
    if refusal is not None:
        return refusal
    pads = _padding_stages(sch, sums)
    inline_maps(sch, pads)
    last = _last_stage(sch, sums, len(pads))
    if isinstance(last, Refusal):
        return last

    axes = spatial_axes(sch, sums)
    outputs = size_of(axes)
    lanes = _lanes(sch, sums, last, pads, gpu)
    if lanes == 1:
        for pad in pads:
            sch.compute_inline(pad)
    loops = list(sch.get_loops(sums))
    window = loops[len(axes) :]
    rows, lane = split_lanes(sch, loops[: len(axes)], lanes)
    flat = fuse_all(sch, rows) if rows else sch.add_unit_loop(window[0])
    thread = bind_threads(sch, flat, outputs // lanes, gpu)
    sch.reverse_compute_at(last, thread, preserve_unit_loops=True)
    if lane is not None:
        sch.reorder(*window, lane)
        store_wide(sch, last, thread, lanes)
        load_wide(sch, last, thread, lanes)
        sch.unroll(sch.get_loops(last)[-1])
        for pad in pads:
            sch.set_scope(pad, 0, "local")
            sch.compute_at(pad, window[-1], preserve_unit_loops=True)
            vectorize_innermost(sch, pad, lanes)
        load_wide(sch, sums, window[-1], lanes)
        sch.unroll(lane)
    init = sch.decompose_reduction(sums, window[0])
    if lane is not None and sch.get(sch.get_loops(init)[-1]).kind == tirx.ForKind.SERIAL:
        sch.unroll(sch.get_loops(init)[-1])
    terms = math.prod(int(sch.get(loop).extent) for loop in window)
    for loop in window:
        # Loads of a loop that is not unrolled wait for each other.
        if terms <= _SHORT_REDUCTION or int(sch.get(loop).extent) <= _LONGEST_UNROLLED:
            sch.unroll(loop)
    return sch.mod["main"]


def _is_unfit(sch: s_tir.Schedule, sums: Any, gpu: Gpu) -> Refusal | None:
    axes = axes_of(sch, sums) or []
    if [axis.reduce for axis in axes] != sorted(axis.reduce for axis in axes):
        return Refusal("the reduction's axes are not last")
    if detect_iter_traits(sch.get(sums)) is not None:
        return Refusal("it is a matrix product")
    terms = math.prod(axis.extent for axis in axes if axis.reduce)
    outputs = size_of([axis for axis in axes if not axis.reduce])
    few = outputs < terms * gpu.num_sms
    if terms > _LONGEST_REDUCTION or (terms > _SHORT_REDUCTION and few):
        return Refusal(f"{terms} terms for {outputs} results are too many for one thread")
    return None


def _padding_stages(sch: s_tir.Schedule, sums: Any) -> list[Any]:
    """The stages that put zeros around what the reduction reads: each is loaded window by window.

    Whether a place is padding does not depend on the channel, so a guarded load stays wide.
    """
    return [
        block
        for block in sch.get_producers(sums)
        if has_branches(sch.get(block)) and is_elementwise(sch.get(block))
    ]


def _last_stage(sch: s_tir.Schedule, sums: Any, pads: int) -> Any | Refusal:
    """The stage that stores: the one reader of the sums, or a copy from registers."""
    readers = list(sch.get_consumers(sums))
    if len(root_blocks(sch)) > 1 + len(readers) + pads or len(readers) > 1:
        return Refusal("several stages follow the reduction")
    if not readers:
        return sch.cache_write(sums, 0, "local")
    own, other = axes_of(sch, readers[0]), axes_of(sch, sums)
    stmt = sch.get(readers[0])
    written = [write.source for write in sch.get(sums).writes]
    if own is None or other is None or not is_elementwise(stmt):
        return Refusal("what follows the reduction is not elementwise")
    if not all(reads_in_order(stmt, own, buffer) for buffer in written):
        return Refusal("what follows the reduction reads it in another order")
    # An argmax has two: where the largest value is, and the value, which nobody else reads.
    for index in range(len(written)):
        sch.set_scope(sums, index, "local")
    return readers[0]


def _lanes(sch: s_tir.Schedule, sums: Any, last: Any, pads: list[Any], gpu: Gpu) -> int:
    """Results per thread along the last axis."""
    axes = spatial_axes(sch, sums)
    stages = [sch.get(block) for block in (sums, last, *pads)]
    several = len(sch.get(sums).writes) > 1
    if not axes or several or any(reads_indices(stmt) for stmt in stages):
        return 1
    inner = axes[-1]
    reads = [r for r in sch.get(sums).reads if in_a_row(r, inner.var)]
    if not reads or not in_a_row(sch.get(last).writes[0], spatial_axes(sch, last)[-1].var):
        return 1
    lanes = min(lanes_of(stages, inner.extent), _MOST_LANES)
    while lanes > 1 and size_of(axes) // lanes < _LEAST_THREADS * gpu.num_sms:
        lanes //= 2
    return lanes
