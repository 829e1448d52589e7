"""Kernels without reductions: one thread per vector of consecutive elements.

Element-wise chains, data movement, lookups. Stages are inlined to one per output; each output's
elements are spread over threads, with wide loads and stores where operands lie in rows.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import relax, s_tir, tirx

from collage.backends.tvm.common.blocks import (
    Axis,
    axes_of,
    fuse_all,
    loop_extent,
    root_blocks,
    size_of,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import has_branches, reads_indices
from collage.backends.tvm.cuda.schedules._base import WARP, Gpu, dtype_bytes
from collage.backends.tvm.cuda.schedules._vector import (
    in_a_row,
    inline_maps,
    is_map,
    lanes_of,
    load_wide,
    split_lanes,
    store_wide,
)

_THREADS = 256

_LONG = 8
"""Bytes of a float64."""

_LEAST_WARPS = 2
"""Warps per multiprocessor below which threads take fewer elements each."""


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel all of whose stages are without reductions.

    Parameters
    ----------
    func, gpu
        A kernel without reductions, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where a stage reduces or is no map.
    """
    sch = s_tir.Schedule(func)
    blocks = root_blocks(sch)
    if not blocks:
        return Refusal("there is no stage")
    for block in blocks:
        axes = axes_of(sch, block)
        if axes is None or sch.get(block).init is not None:
            return OTHER_KIND
        if any(axis.reduce for axis in axes) or not is_map(sch.get(block)):
            return OTHER_KIND
    inline_maps(sch, all_of_them=False)
    if relax.analysis.has_reshape_pattern(func):
        _bind_evenly(sch, root_blocks(sch)[0], gpu)
    else:
        for block in root_blocks(sch):
            _bind_elements(sch, block, gpu)
    return sch.mod["main"]


def _bind_evenly(sch: s_tir.Schedule, block: Any, gpu: Gpu) -> None:
    """Spread a reshape over threads so that Relax still sees what it is.

    Its pass ``RewriteDataflowReshape`` then drops the kernel and lets both tensors share memory; it
    does not look through registers or guards.
    """
    flat = fuse_all(sch, list(sch.get_loops(block)) or [sch.add_unit_loop(block)])
    total = loop_extent(sch, flat)
    threads = min(_THREADS, gpu.max_threads)
    while total % threads:
        threads -= 1
    _bind(sch, flat, threads)


def _bind_elements(sch: s_tir.Schedule, block: Any, gpu: Gpu) -> None:
    """Spread the elements of one stage over threads."""
    axes = axes_of(sch, block) or []
    loops = list(sch.get_loops(block)) or [sch.add_unit_loop(block)]
    lanes = _lanes(sch, block, axes, gpu)
    loops, lane = split_lanes(sch, loops, lanes)
    vectors = max(size_of(axes), 1) // lanes
    thread = bind_threads(sch, fuse_all(sch, loops), vectors, gpu)
    if lane is not None:
        store_wide(sch, block, thread, lanes)
        load_wide(sch, block, thread, lanes)
        sch.unroll(lane)


def bind_threads(sch: s_tir.Schedule, loop: Any, items: int, gpu: Gpu) -> Any:
    """Split a loop into blocks of threads; the loop over threads is returned.

    Parameters
    ----------
    sch, loop
        The loop's iterations are independent; it is replaced.
    items : int
        How many it has.
    gpu : Gpu
        Decides how many threads a block has.

    Returns
    -------
    LoopRV
        Bound to ``threadIdx.x``; the loop around it to ``blockIdx.x``.
    """
    threads = min(_THREADS, gpu.max_threads)
    # Fewer where there is too little to fill every multiprocessor.
    while threads > 2 * WARP and items < threads * gpu.num_sms:
        threads //= 2
    # No more than there is work for: what stores a single result does not name the thread, so TVM
    # would put no guard around it, and idle threads would store as well what they have not summed.
    return _bind(sch, loop, min(threads, items))


def _bind(sch: s_tir.Schedule, loop: Any, threads: int) -> Any:
    block_x, thread_x = sch.split(loop, [None, threads])
    sch.bind(block_x, "blockIdx.x")
    sch.bind(thread_x, "threadIdx.x")
    return thread_x


def _lanes(sch: s_tir.Schedule, block: Any, axes: list[Axis], gpu: Gpu) -> int:
    """Elements per thread: as many as a wide access holds, one where elements are chosen.

    And one where short numbers are computed with in float64: what that takes no access is worth.
    A special function of eight halves, whose cases follow one another eight times in each thread,
    took nine times as long as one of four float32.
    """
    stmt = sch.get(block)
    if not axes or has_branches(stmt) or reads_indices(stmt) or _computes_longer(stmt):
        return 1
    if not in_a_row(stmt.writes[0], axes[-1].var):
        return 1
    lanes = lanes_of([stmt], axes[-1].extent)
    while lanes > 1 and size_of(axes) // lanes < _LEAST_WARPS * WARP * gpu.num_sms:
        lanes //= 2
    return lanes


def _computes_longer(stmt: Any) -> bool:
    """Whether products of float64 go into what is stored in fewer bits."""
    if any(dtype_bytes(region.source) == _LONG for region in stmt.writes):
        return False

    def check(product: tirx.Mul) -> tvm_ffi.VisitInterrupt | None:
        return tvm_ffi.VisitInterrupt() if str(product.ty) == "float64" else None

    return tvm_ffi.structural_walk(stmt.body, [(tirx.Mul, check)]) is not None
