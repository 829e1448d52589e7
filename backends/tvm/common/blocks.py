"""What every schedule family asks of blocks and loops, and does to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tvm import s_tir, sym, tirx

from collage.backends.tvm.common.machine import Machine

_TASKS_PER_THREAD = 4
"""Parallel iterations wanted per thread: enough to even out unequal finishing times."""

PARALLEL_MIN_WORK = 16384
"""Scalar operations below which a parallel region (about 2 µs to start) does not pay."""

SpatialBlock = tirx.IterVar.DataPar
ReduceBlock = tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Axis:
    """One axis of a block: its variable, its extent, and whether it is reduced over."""

    var: Any
    extent: int
    reduce: bool


def int64(*values: int) -> list[Any]:
    """Extents as TVM's 64-bit integers, as shapes of tensors are."""
    return [tirx.IntImm("int64", value) for value in values]


def axes_of(sch: s_tir.Schedule, block: Any) -> list[Axis] | None:
    """The axes of a block, or None where one is neither spatial nor a reduction, or not static.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        One of its stages.

    Returns
    -------
    list[Axis] or None
        In the block's order; reductions are marked.
    """
    axes = []
    for iter_var in sch.get(block).iter_vars:
        extent = iter_var.dom.extent
        if iter_var.iter_type not in (SpatialBlock, ReduceBlock) or not isinstance(
            extent, tirx.IntImm
        ):
            return None
        axes.append(Axis(iter_var.var, int(extent), iter_var.iter_type == ReduceBlock))
    return axes


def size_of(axes: Sequence[Axis]) -> int:
    """Number of points of an iteration space."""
    return math.prod(axis.extent for axis in axes)


def loop_extent(sch: s_tir.Schedule, loop: Any) -> int:
    """Extent of a loop; every loop here is static.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    loop : LoopRV
        One of its loops.

    Returns
    -------
    int
        Iterations of the loop.
    """
    return int(sch.get(loop).extent)


def _stride_of(index: Any, var: Any) -> int | None:
    """How far ``index`` moves when ``var`` moves by one; None when that is not a constant."""
    parts = sym.detect_linear_equation(index, [var])
    if len(parts) != 2 or not isinstance(parts[0], tirx.IntImm):
        return None
    return int(parts[0])


def buffer_stride(region: Any, var: Any) -> int | None:
    """How many elements an access moves in memory when ``var`` moves by one; None if not fixed.

    Parameters
    ----------
    region : BufferRegion
        What a stage reads or writes.
    var : tirx.Var
        An axis of the stage.

    Returns
    -------
    int or None
        In elements of the buffer laid out row by row; 0 where the access does not depend on the
        axis.
    """
    total = 0
    step = 1
    shape = [int(dim) for dim in region.source.shape]
    for dim, rng in zip(reversed(shape), reversed(list(region.region)), strict=True):
        stride = _stride_of(rng.min, var)
        if stride is None:
            return None
        total += stride * step
        step *= dim
    return total


def mergeable(region: Any, outer: Axis, inner: Axis) -> bool:
    """Whether an access stays linear when two adjacent axes are fused to one loop.

    Parameters
    ----------
    region : BufferRegion
        As :func:`buffer_stride` takes it.
    outer, inner : Axis
        Of the stage, the inner one right behind the outer one.

    Returns
    -------
    bool
        False as well where one of the two strides is not fixed.
    """
    first = buffer_stride(region, outer.var)
    second = buffer_stride(region, inner.var)
    return first is not None and second is not None and first == second * inner.extent


def root_blocks(sch: s_tir.Schedule) -> list[Any]:
    """The blocks right under the root block, in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def other_blocks(sch: s_tir.Schedule, blocks: Sequence[Any]) -> list[Any]:
    """The blocks right under the root block but for the given ones, in order.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    blocks : sequence of SBlockRV
        Those to leave out.

    Returns
    -------
    list of SBlockRV
        A block is left out where it stands for the same stage, by whatever handle.
    """
    known = [sch.get(block) for block in blocks]
    return [b for b in root_blocks(sch) if not any(sch.get(b).same_as(own) for own in known)]


def leading_independent(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """A block's loops before the first one that is reduced over.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        Of any stage.

    Returns
    -------
    list of LoopRV
        Empty where the loops are not the block's axes, one for one.
    """
    loops = list(sch.get_loops(block))
    kinds = [iter_var.iter_type for iter_var in sch.get(block).iter_vars]
    if len(kinds) != len(loops):
        return []
    return [
        loop
        for loop, _ in takewhile(
            lambda pair: pair[1] == SpatialBlock, zip(loops, kinds, strict=True)
        )
    ]


def element_dtype(sch: s_tir.Schedule, block: Any) -> str:
    """Data type of what a block writes.

    Parameters
    ----------
    sch, block
        As :func:`axes_of` takes them.

    Returns
    -------
    str
        Such as ``float32``; of its first output, where it has several.
    """
    return str(sch.get(block).writes[0].source.dtype)


def fuse_all(sch: s_tir.Schedule, loops: Sequence[Any]) -> Any:
    """Fuse adjacent loops to one.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    loops : sequence of LoopRV
        One or more, from the outermost.

    Returns
    -------
    LoopRV
        The loop that stands for all of them.
    """
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def vectorize(sch: s_tir.Schedule, loop: Any, lanes: int) -> Any | None:
    """Vectorize a loop by ``lanes``; a remainder is peeled off and runs scalar.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    loop : LoopRV
        Innermost, over contiguous elements.
    lanes : int
        Elements of a vector.

    Returns
    -------
    LoopRV or None
        The loop over whole vectors; None where there is no more than a single one.
    """
    extent = loop_extent(sch, loop)
    if extent <= lanes:
        if extent > 1:
            sch.vectorize(loop)
        return None
    outer, inner = sch.split(loop, [None, lanes])
    sch.vectorize(inner)
    if extent % lanes:
        sch.annotate(outer, "pragma_loop_partition_hint", 1)
    return outer


def parallelize(sch: s_tir.Schedule, loop: Any, machine: Machine, work: int) -> Any:
    """Run a loop in parallel, in a few chunks per thread, when there is enough work for it.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    loop : LoopRV
        Its iterations are independent.
    machine : Machine
        Has the threads.
    work : int
        Elements that the whole loop computes.

    Returns
    -------
    LoopRV
        The one inside of a task; the given one where there are no tasks, or each has one iteration.
    """
    extent = loop_extent(sch, loop)
    if work < PARALLEL_MIN_WORK or extent == 1 or machine.num_threads == 1:
        return loop
    chunks = machine.num_threads * _TASKS_PER_THREAD
    if extent <= 2 * chunks:
        sch.parallel(loop)
        return loop
    outer, inner = sch.split(loop, [chunks, None])
    sch.parallel(outer)
    return inner


def parallelize_outer(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Run all but the innermost loop of a block in parallel, when there is enough work for it.

    Parameters
    ----------
    sch, machine
        As :func:`parallelize` takes them.
    block : SBlockRV
        Its outer loops are independent.
    """
    *outer, _ = loops = sch.get_loops(block)
    work = math.prod(loop_extent(sch, loop) for loop in loops)
    parallelize(sch, fuse_all(sch, outer), machine, work)
