"""Reductions along contiguous elements: one partial result per vector lane, rows or pieces at once.

Adding up in another order is not something LLVM may do by itself, so the plain loop adds one
element after the other. Here each lane of a few vectors has a sum of its own (``rfactor``). Where
there are fewer results than threads could work on, each thread reduces a piece, and the pieces'
results are reduced in the end. Other stages of the kernel are scheduled as ``generic`` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx

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
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import inline_stages, reads_indices
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules.generic import schedule_stage
from collage.backends.tvm.cpu.schedules.reductions.tails import (
    Cut,
    may_overlap,
    reduce_in_whole_vectors,
)

_LONG = 32
"""Vectors of a row from which on several are added up at once: an addition takes four cycles."""

_AT_ONCE = 4
_PIECES_PER_THREAD = 4
_SHORTEST_VECTOR = 4


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel that has such a reduction.

    Parameters
    ----------
    func, machine
        Any kernel, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where no reduction runs along memory.
    """
    sch = s_tir.Schedule(func)
    inline_stages(sch)
    for block in root_blocks(sch):
        if not sch.get_loops(block):
            sch.add_unit_loop(block)  # Beside a stage without any loop TVM cannot do an rfactor.
    cuts: dict[int, Cut] = {}
    for number, block in enumerate(root_blocks(sch)):
        axes = axes_of(sch, block) or []
        if _runs_along_memory(sch, block, axes):
            cuts[number] = _cut(sch, block, axes, machine)
    if not any(cut.lanes for cut in cuts.values()):
        return OTHER_KIND
    ends = {number: cut.lanes for number, cut in cuts.items() if cut.ending}
    if ends:
        sch = s_tir.Schedule(reduce_in_whole_vectors(sch.mod["main"], ends))
    for number, block in enumerate(root_blocks(sch)):
        if number in cuts and cuts[number].lanes:
            _schedule_row_sums(sch, block, cuts[number], machine)
        else:
            schedule_stage(sch, block, machine)
    return sch.mod["main"]


def is_contiguous(sch: s_tir.Schedule, block: Any, axis: Axis) -> bool:
    """Whether a reduction over an axis walks through memory element by element.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        The reduction.
    axis : Axis
        One of its axes.

    Returns
    -------
    bool
        True where some operand is read so, and the others too or at one place.
    """
    strides = [buffer_stride(region, axis.var) for region in sch.get(block).reads]
    return 1 in strides and all(stride in (0, 1) for stride in strides)


def neighbours(sch: s_tir.Schedule, block: Any, axes: list[Axis]) -> int:
    """How many of a reduction's last axes lie one behind the other in all that it reads along them.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        The reduction.
    axes : list of Axis
        Of the block, the innermost last.

    Returns
    -------
    int
        At least one.
    """
    regions = sch.get(block).reads
    count = 1
    while count < len(axes) and axes[-count - 1].reduce:
        outer, inner = axes[-count - 1], axes[-count]
        if not all(mergeable(region, outer, inner) for region in regions):
            break
        count += 1
    return count


def finish_partial(sch: s_tir.Schedule, partial: Any, outer: int = 1) -> None:
    """Put a partial reduction's lanes innermost, vectorize them, and zero them first.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    partial : SBlockRV
        What ``rfactor`` made, its new axis the first loop behind ``outer`` others.
    outer : int
        Loops that it was moved into.
    """
    axes = axes_of(sch, partial) or []
    loops = sch.get_loops(partial)[outer:]
    lane = loops[0]  # rfactor puts the new axis first
    own = axes[-len(loops) :]
    reduction = [loop for axis, loop in zip(own, loops, strict=True) if axis.reduce]
    sch.reorder(*reduction, lane)
    sch.vectorize(lane)
    init = sch.decompose_reduction(partial, reduction[0])
    init_lane = sch.get_loops(init)[-1]
    if sch.get(init_lane).kind == tirx.ForKind.SERIAL:
        sch.vectorize(init_lane)


def _cut(sch: s_tir.Schedule, block: Any, axes: Sequence[Axis], machine: Machine) -> Cut:
    widest = machine.lanes(element_dtype(sch, block))
    first = _merged(sch, block, axes)
    whole = Cut(first, _lanes(_extent(axes[first:]), widest))
    extent = axes[-1].extent
    steps = -(-extent // widest) * _extent(axes[first:-1])
    if extent <= widest or extent % widest == 0 or not may_overlap(sch.get(block)):
        return whole
    if whole.lanes and steps >= _extent(axes[first:]) // whole.lanes:
        return whole
    at_once = _AT_ONCE if extent >= _LONG * widest * _AT_ONCE else 1
    return Cut(len(axes) - 1, widest * at_once, ending=True)


def _runs_along_memory(sch: s_tir.Schedule, block: Any, axes: Sequence[Axis]) -> bool:
    if not axes or not axes[-1].reduce or len(sch.get_loops(block)) != len(axes):
        return False
    if [axis.reduce for axis in axes] != sorted(axis.reduce for axis in axes):
        return False
    return not reads_indices(sch.get(block)) and is_contiguous(sch, block, axes[-1])


def _merged(sch: s_tir.Schedule, block: Any, axes: Sequence[Axis]) -> int:
    """Where the reduced axes begin that are one contiguous run of elements.

    Two axes at most: TVM does not find back the linear index of three fused and split axes.
    """
    first = len(axes) - 1
    regions = sch.get(block).reads
    while (
        first > 0
        and axes[first - 1].reduce
        and sum(axis.extent > 1 for axis in axes[first - 1 :]) <= 2
        and all(mergeable(region, axes[first - 1], axes[first]) for region in regions)
    ):
        first -= 1
    return first


def _extent(axes: Sequence[Axis]) -> int:
    return size_of(axes)


def _lanes(extent: int, widest: int) -> int:
    """How many partial results a row has; none where it does not divide into vectors.

    (A remainder would need a predicate, which ``compute_at`` drops on such a stage.)
    """
    if extent >= _LONG * widest * _AT_ONCE and extent % (widest * _AT_ONCE) == 0:
        return widest * _AT_ONCE
    fitting = (n for n in range(widest, _SHORTEST_VECTOR - 1, -1) if extent % n == 0)
    lanes = next(fitting, 0)
    return lanes if extent >= 2 * lanes else 0


def _schedule_row_sums(sch: s_tir.Schedule, block: Any, cut: Cut, machine: Machine) -> None:
    axes = axes_of(sch, block) or []
    work = size_of(axes)
    results = size_of([axis for axis in axes if not axis.reduce])
    spatial = sum(not axis.reduce for axis in axes)
    loops = sch.get_loops(block)
    if cut.ending:
        row, before = loops[-2], list(loops[spatial:-2])
    else:
        row, before = fuse_all(sch, loops[cut.first :]), list(loops[spatial : cut.first])
    lanes = 1 if cut.ending else cut.lanes
    pieces = _pieces(sch, [*before, row], lanes, results, work, machine)
    if pieces is not None:
        block = sch.rfactor(pieces, factor_axis=0)
    lane = sch.get_loops(block)[-1]
    if not cut.ending:
        _, lane = sch.split(lane, [None, cut.lanes])
    places = len(sch.get(block).writes[0].source.shape)
    partial = sch.rfactor(lane, factor_axis=places)
    *outer, lanes_left = sch.get_loops(block)
    if outer:
        task = parallelize(sch, fuse_all(sch, outer), machine, work)
    else:
        task = sch.add_unit_loop(lanes_left)
    sch.compute_at(partial, task, preserve_unit_loops=True)
    finish_partial(sch, partial, len(sch.get_loops(block)) - 1)


def _pieces(
    sch: s_tir.Schedule,
    loops: Sequence[Any],
    lanes: int,
    results: int,
    work: int,
    machine: Machine,
) -> Any | None:
    """A loop over pieces of the reduction, one task each, where results are too few for that."""
    wanted = machine.num_threads * _PIECES_PER_THREAD
    if results * 2 > wanted or work < 4 * PARALLEL_MIN_WORK or machine.num_threads == 1:
        return None
    first, last = loops[0], loops[-1]
    whole = loop_extent(sch, first) if len(loops) > 1 else loop_extent(sch, last) // lanes
    count = next((n for n in range(wanted // results, 1, -1) if whole % n == 0), 0)
    if count == 0:
        return None
    piece, _ = sch.split(first, [count, None])
    return piece
