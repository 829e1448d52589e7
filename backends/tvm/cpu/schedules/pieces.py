"""Rows made of pieces, each of which follows a rule of its own: reflected ends, wrapped ones.

Which piece an element belongs to is decided by the loop that it is in. Decided for each element, as
a condition on its place, it kept LLVM from copying whole vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    fuse_all,
    loop_extent,
    other_blocks,
    parallelize,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import generic
from collage.backends.tvm.cpu.schedules._epilogue import find_block, fold_epilogue

_ANNOTATION = "collage.pieces"


def in_pieces(data: te.Tensor, pieces: Sequence[int]) -> te.Tensor:
    """The same tensor, whose rows are known to change their rule at places.

    Parameters
    ----------
    data : te.Tensor
        Of one axis or more.
    pieces : sequence of int
        How long the pieces of its last axis are, in order; all of it together.

    Returns
    -------
    te.Tensor
        A stage that :func:`schedule` finds.
    """
    return te.compute(
        data.shape, lambda *at: data(*at), name="pieces", attrs={_ANNOTATION: list(pieces)}
    )


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule what :func:`in_pieces` marked, with whatever was fused behind it.

    Parameters
    ----------
    func, machine
        A pad, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where nothing is marked.
    """
    sch = s_tir.Schedule(func)
    view = find_block(sch, _ANNOTATION)
    if view is None:
        return OTHER_KIND
    lengths = [int(length) for length in sch.get(view).annotations[_ANNOTATION]]
    sch.unannotate(view, _ANNOTATION)
    last = fold_epilogue(sch, view, {sch.get(view).name_hint})
    rest = other_blocks(sch, (last,))
    *outer, row = sch.get_loops(last)
    if outer:
        rows = fuse_all(sch, outer)
        parallelize(sch, rows, machine, loop_extent(sch, rows) * loop_extent(sch, row))
    # Last: what a loop over pieces stands in is no plain loop any more.
    sch.loop_partition(row, [*lengths[:-1], None])
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]
