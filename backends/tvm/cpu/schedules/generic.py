"""The schedule that takes any kernel: each stage parallel over its outer axes, vectorized inside.

Cheap elementwise stages are inlined into their consumers; every other stage gets a loop nest of its
own. Families for particular kernels do better; this one has to be correct for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from collage.backends.tvm.common.blocks import (
    PARALLEL_MIN_WORK,
    Axis,
    axes_of,
    buffer_stride,
    element_dtype,
    fuse_all,
    loop_extent,
    mergeable,
    parallelize,
    root_blocks,
    size_of,
    vectorize,
)
from collage.backends.tvm.common.families import Refusal
from collage.backends.tvm.common.inlining import (
    chosen_by,
    has_branches,
    inline_stages,
    reads_indices,
)
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules.overlapping import overlapping

_WINDOW_STEP = 4
_LONG_REDUCTION = 16


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Inline what is cheap, then schedule stage by stage.

    Parameters
    ----------
    func, machine
        Any kernel, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled as far as stages allow; a refusal where none of them does.
    """
    sch = s_tir.Schedule(func)
    inline_stages(sch)
    scheduled = [schedule_stage(sch, block, machine) for block in root_blocks(sch)]
    if not any(scheduled):
        return Refusal("no stage has static, independent axes")
    return sch.mod["main"]


def schedule_stage(sch: s_tir.Schedule, block: Any, machine: Machine) -> bool:
    """Schedule one stage in a loop nest of its own; False where its axes do not allow it.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel that the stage belongs to.
    block : SBlockRV
        The stage.
    machine : Machine
        Vector lanes and threads.

    Returns
    -------
    bool
        Whether it was scheduled; otherwise its loops are as they were.
    """
    axes = axes_of(sch, block)
    if not axes or len(sch.get_loops(block)) != len(axes):
        return False
    if any(axis.reduce for axis in axes):
        _schedule_reduction(sch, block, axes, machine)
    else:
        _schedule_spatial(sch, block, axes, machine)
    return True


def _schedule_spatial(
    sch: s_tir.Schedule, block: Any, axes: Sequence[Axis], machine: Machine
) -> None:
    """One stage without a reduction: fuse what is linear in memory, split, vectorize inside."""
    loops = list(sch.get_loops(block))
    regions = [*sch.get(block).reads, *sch.get(block).writes]
    lanes = machine.lanes(element_dtype(sch, block))
    work = size_of(axes)
    first = len(axes) - 1
    chosen = chosen_by(sch.get(block))
    # Two axes at most: TVM does not find back the linear index of three fused and split axes.
    while (
        first > 0
        and sum(axis.extent > 1 for axis in axes[first - 1 :]) <= 2
        and axes[first - 1].var not in chosen
        and all(mergeable(r, axes[first - 1], axes[first]) for r in regions)
    ):
        first -= 1
    inner = fuse_all(sch, loops[first:])
    whole = loop_extent(sch, inner) % lanes == 0
    fills = _fills_vectors(sch.get(block), axes[-1])
    if first == 0 and fills and not whole and overlapping(sch, block, inner, lanes):
        if work >= PARALLEL_MIN_WORK and machine.num_threads > 1:
            sch.parallel(inner)
        return
    if first == 0:
        outer, inner = _split_chunks(sch, inner, lanes, machine)
    else:
        outer = fuse_all(sch, loops[:first])
    if fills and whole:
        vectorize(sch, inner, lanes)
    elif fills:
        overlapping(sch, block, inner, lanes)
    parallelize(sch, outer, machine, work)


def _fills_vectors(stmt: Any, axis: Axis) -> bool:
    """Whether neighbours along an axis make whole vectors in every access.

    Where they do not, LLVM's own vectorizer finds better code for the plain loop: masked loads for
    padding, whole loads and shuffles for strides.
    """
    strides = [buffer_stride(region, axis.var) for region in [*stmt.reads, *stmt.writes]]
    regular = all(stride in (0, 1) for stride in strides)
    return regular and not has_branches(stmt) and not reads_indices(stmt) and not _looks_up(stmt)


def _looks_up(stmt: Any) -> bool:
    """Whether a stage reads at places that it reads, as gathers do.

    With places of 32 bits TVM mixes widths where it cuts a loop into whole vectors and a remainder.
    """
    stop = tvm_ffi.VisitInterrupt()

    def check(load: TensorLoad) -> tvm_ffi.VisitInterrupt | None:
        inner = [(TensorLoad, lambda _: stop)]
        found = any(tvm_ffi.structural_walk(at, inner) is not None for at in load.indices)
        return stop if found else None

    return tvm_ffi.structural_walk(stmt.body, [(TensorLoad, check)]) is not None


def _split_chunks(sch: s_tir.Schedule, loop: Any, lanes: int, machine: Machine) -> tuple[Any, Any]:
    """Cut one linear loop to chunks of whole vectors."""
    extent = loop_extent(sch, loop)
    wanted = machine.num_threads * 4
    size = max(lanes, -(-extent // (wanted * lanes)) * lanes)
    outer, inner = sch.split(loop, [None, min(size, extent)])
    return outer, inner


def _schedule_reduction(
    sch: s_tir.Schedule, block: Any, axes: Sequence[Axis], machine: Machine
) -> None:
    """One stage with a reduction: vectorize a contiguous spatial axis, or the reduction itself."""
    loops = list(sch.get_loops(block))
    spatial = [(axis, loop) for axis, loop in zip(axes, loops, strict=True) if not axis.reduce]
    reduce = [(axis, loop) for axis, loop in zip(axes, loops, strict=True) if axis.reduce]
    work = size_of(axes)
    lanes = machine.lanes(element_dtype(sch, block))
    if len(sch.get(block).writes) > 1:
        _parallel_only(sch, [loop for _, loop in spatial], machine, work)
        return
    if spatial and _lanes_move_together(sch, block, spatial[-1][0], lanes):
        _vectorize_spatial(sch, block, spatial, reduce, lanes, machine)
    elif spatial and _window_slides(sch, block, spatial[-1][0]):
        *outer, (_, last) = spatial
        outer_loops = [loop for _, loop in outer]
        sch.reorder(*outer_loops, *[loop for _, loop in reduce], last)
        _parallel_only(sch, outer_loops, machine, work)
        sch.decompose_reduction(block, reduce[0][1])
    else:
        _parallel_only(sch, [loop for _, loop in spatial], machine, work)


def _window_slides(sch: s_tir.Schedule, block: Any, axis: Axis) -> bool:
    """Whether neighbours along ``axis`` read elements a few steps apart, as in strided pooling.

    The reduction then runs outside of that axis, whose plain loop LLVM vectorizes.
    """
    strides = [buffer_stride(region, axis.var) for region in sch.get(block).reads]
    return axis.extent >= 4 and all(s is not None and 0 <= s <= _WINDOW_STEP for s in strides)


def _parallel_only(sch: s_tir.Schedule, loops: Sequence[Any], machine: Machine, work: int) -> None:
    if loops:
        parallelize(sch, fuse_all(sch, loops), machine, work)


def _lanes_move_together(sch: s_tir.Schedule, block: Any, axis: Axis, lanes: int) -> bool:
    """Whether neighbours along ``axis`` are neighbours in memory wherever they differ.

    And make whole vectors: elements left over would each be reduced alone, which took a 3-D
    convolution of rows of 28 three times as long as LLVM's own vectors.
    """
    if axis.extent > lanes and axis.extent % lanes:
        return False
    stmt = sch.get(block)
    strides = [buffer_stride(region, axis.var) for region in stmt.reads]
    own = [buffer_stride(region, axis.var) for region in stmt.writes]
    return all(stride in (0, 1) for stride in strides) and own == [1] and axis.extent > 1


def _vectorize_spatial(
    sch: s_tir.Schedule,
    block: Any,
    spatial: Sequence[tuple[Axis, Any]],
    reduce: Sequence[tuple[Axis, Any]],
    lanes: int,
    machine: Machine,
) -> None:
    last_axis, last_loop = spatial[-1]
    outer_loops = [loop for _, loop in spatial[:-1]]
    reduce_loops = [loop for _, loop in reduce]
    work = size_of([axis for axis, _ in [*spatial, *reduce]])
    together = _vectors_together([axis for axis, _ in spatial], reduce, lanes, machine)
    inside: list[Any] = []
    if together > 1:
        chunk, several, vector = sch.split(last_loop, [None, together, lanes])
        outer_loops.append(chunk)
        inside.append(several)
    elif last_axis.extent > lanes:
        chunk, vector = sch.split(last_loop, [None, lanes])
        outer_loops.append(chunk)
    else:
        vector = last_loop
    sch.reorder(*outer_loops, *reduce_loops, *inside, vector)
    for loop in inside:
        sch.unroll(loop)
    if loop_extent(sch, vector) > 1:
        sch.vectorize(vector)
    if outer_loops:
        parallelize(sch, fuse_all(sch, outer_loops), machine, work)
    # Last: after it the stage is two blocks, which no other primitive takes.
    init = sch.decompose_reduction(block, reduce_loops[0])
    _vectorize_init(sch, init)


def _vectors_together(
    spatial: Sequence[Axis], reduce: Sequence[tuple[Axis, Any]], lanes: int, machine: Machine
) -> int:
    """How many vectors of neighbours a long reduction takes along: a row of them is a few lines of
    memory instead of one, and each has an addition of its own under way."""
    if size_of([axis for axis, _ in reduce]) < _LONG_REDUCTION:
        return 1
    results = size_of(spatial)
    for count in (8, 4, 2):
        tasks = results // (count * lanes)
        if spatial[-1].extent % (count * lanes) == 0 and tasks >= 2 * machine.num_threads:
            return count
    return 1


def _vectorize_init(sch: s_tir.Schedule, init: Any) -> None:
    loops = sch.get_loops(init)
    if loops and sch.get(loops[-1]).kind == tirx.ForKind.SERIAL and loop_extent(sch, loops[-1]) > 1:
        sch.vectorize(loops[-1])
