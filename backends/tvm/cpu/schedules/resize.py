"""Interpolated images: each row of the result is made whole, from one row between those it reads.

The row between stays in the first-level cache, and what makes it reads and writes whole vectors.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    fuse_all,
    int64,
    loop_extent,
    other_blocks,
    parallelize,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import generic
from collage.backends.tvm.cpu.schedules._epilogue import find_block, fold_epilogue

_ANNOTATION = "collage.columns"


def between_rows(data: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Rows that lie between others.

    Parameters
    ----------
    data : te.Tensor
        ``(N, C, H, W)``.
    places, weights : te.Tensor
        ``(taps, rows)``: which rows make one, and how much of each.

    Returns
    -------
    te.Tensor
        ``(N, C, rows, W)``.
    """
    taps, height = (int(dim) for dim in places.shape)
    batch, channels, _, width = (int(dim) for dim in data.shape)

    def row(n: Any, c: Any, y: Any, x: Any) -> Any:
        return _sum([data[n, c, places[tap, y], x] * weights[tap, y] for tap in range(taps)])

    return te.compute(int64(batch, channels, height, width), row, name="rows")


def between_columns(data: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Columns that lie between others.

    Parameters
    ----------
    data : te.Tensor
        ``(N, C, H, W)``.
    places, weights : te.Tensor
        ``(taps, columns)``: which columns make one, and how much of each.

    Returns
    -------
    te.Tensor
        ``(N, C, H, columns)``.
    """
    taps, width = (int(dim) for dim in places.shape)
    batch, channels, height, before = (int(dim) for dim in data.shape)

    def column(n: Any, c: Any, y: Any, x: Any) -> Any:
        # Held inside, or TVM cannot tell that a row of the result reads one row.
        held = [tirx.max(tirx.min(places[tap, x], before - 1), 0) for tap in range(taps)]
        return _sum([data[n, c, y, held[tap]] * weights[tap, x] for tap in range(taps)])

    return te.compute(
        int64(batch, channels, height, width), column, name="columns", attrs={_ANNOTATION: 1}
    )


def _sum(terms: list[Any]) -> Any:
    total, *others = terms
    for term in others:
        total = total + term
    return total


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule what :func:`between_columns` made, with whatever was fused behind it.

    Parameters
    ----------
    func, machine
        An interpolation, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where its columns stay as they are.
    """
    sch = s_tir.Schedule(func)
    columns = find_block(sch, _ANNOTATION)
    if columns is None:
        return OTHER_KIND
    sch.unannotate(columns, _ANNOTATION)
    rows = [block for block in sch.get_producers(columns) if sch.get(block).name_hint == "rows"]
    kept = {sch.get(block).name_hint for block in (columns, *rows)}
    last = fold_epilogue(sch, columns, kept)
    rest = other_blocks(sch, (*rows, last))
    *outer, row = sch.get_loops(last)
    width = loop_extent(sch, row)
    task = fuse_all(sch, outer)
    inner = parallelize(sch, task, machine, width * loop_extent(sch, task))
    for block in rows:
        sch.compute_at(block, inner, preserve_unit_loops=True)
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]
