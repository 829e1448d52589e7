"""Wide loads and stores around scalar arithmetic.

A vector in TVM is arithmetic on vector types too, which its CUDA code generator cannot always write
(an eight-lane float constant, say). So only copies are vectorized: a thread reads its elements into
registers with wide loads, computes them one by one in an unrolled loop, and stores them wide.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx

from collage.backends.tvm.common.blocks import (
    Axis,
    axes_of,
    buffer_stride,
    loop_extent,
    root_blocks,
)
from collage.backends.tvm.common.inlining import is_elementwise, multiplies
from collage.backends.tvm.cuda.schedules._base import VECTOR_BYTES, dtype_bytes

_WIDENABLE = ("float16", "bfloat16", "float32", "int8", "uint8", "int32")
"""Element types whose vectors TVM's CUDA code generator can load and store."""


def lanes_of(stmts: list[Any], extent: int) -> int:
    """Elements that one thread takes along the last axis of each given stage.

    Parameters
    ----------
    stmts : list of SBlock
        Stages that share their last spatial axis.
    extent : int
        Its extent, which the answer divides.

    Returns
    -------
    int
        So many that the widest element type that is stored or loaded in a row fills 16 bytes; 1
        where nothing lies in a row.
    """
    rows = []
    for stmt in stmts:
        axis = _last_spatial(stmt)
        for region in [*stmt.reads, *stmt.writes]:
            if axis is not None and in_a_row(region, axis):
                rows.append((region, axis))
    if not rows:
        return 1
    lanes = VECTOR_BYTES // max(dtype_bytes(region.source) for region, _ in rows)
    while lanes > 1 and (
        extent % lanes or not all(is_aligned(region, axis, lanes) for region, axis in rows)
    ):
        lanes //= 2
    return max(lanes, 1)


def is_aligned(region: Any, axis: Any, lanes: int) -> bool:
    """Whether an access along an axis begins at whole vectors, wherever the other axes stand.

    Parameters
    ----------
    region, axis
        As :func:`in_a_row` takes them, and says yes to.
    lanes : int
        Elements of a vector.

    Returns
    -------
    bool
        False where it cannot be proved.
    """
    sizes = [int(extent) for extent in region.source.shape]
    places = [r.min for r in region.region]
    while sizes and sizes[-1] == 1:
        sizes, places = sizes[:-1], places[:-1]
    if not sizes or (len(sizes) > 1 and sizes[-1] % lanes):
        return not sizes or lanes == 1
    swap = [(tirx.Var, lambda var: tirx.const(0, str(var.ty)) if var.same_as(axis) else var)]
    begin = tvm_ffi.structural_map(places[-1], swap, order="post")
    known = sym.Analyzer().modular_set(begin)
    return int(known.coeff) % lanes == 0 and int(known.base) % lanes == 0


def in_a_row(region: Any, axis: Any) -> bool:
    """Whether an access reads single elements that lie side by side along an axis.

    Parameters
    ----------
    region : BufferRegion
        What a stage reads or writes.
    axis : tirx.Var
        An axis of the stage.

    Returns
    -------
    bool
        False too for elements that CUDA has no vectors of.
    """
    single = all(isinstance(r.extent, tirx.IntImm) and int(r.extent) == 1 for r in region.region)
    known = str(region.source.dtype) in _WIDENABLE
    return single and known and buffer_stride(region, axis) == 1


def _last_spatial(stmt: Any) -> Any | None:
    spatial = [v for v in stmt.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    return spatial[-1].var if spatial else None


def load_wide(sch: s_tir.Schedule, block: Any, loop: Any, lanes: int) -> None:
    """Let a stage read what lies in a row through registers, which wide loads fill in ``loop``.

    Parameters
    ----------
    sch : s_tir.Schedule
        Gets a copy of what is read.
    block : SBlockRV
        The stage that reads.
    loop : LoopRV
        Under which a whole vector is read.
    lanes : int
        Elements that one load takes.
    """
    if lanes == 1:
        return
    axis = _last_spatial(sch.get(block))
    reads = list(sch.get(block).reads)
    for index, region in enumerate(reads):
        own = any(region.source.same_as(write.source) for write in sch.get(block).writes)
        if own or region.source.scope() not in ("", "global"):
            continue
        if axis is None or not in_a_row(region, axis):
            continue
        copy = sch.cache_read(block, index, "local", [block])
        sch.compute_at(copy, loop, preserve_unit_loops=True)
        vectorize_innermost(sch, copy, lanes)


def store_wide(sch: s_tir.Schedule, block: Any, loop: Any, lanes: int) -> str | None:
    """Let a stage write through registers, emptied by wide stores under ``loop``.

    Parameters
    ----------
    sch, block, loop, lanes
        As :func:`load_wide` takes them; the block is the one that writes.

    Returns
    -------
    str or None
        The name of the stage that stores, if there is one.
    """
    if lanes == 1 or str(sch.get(block).writes[0].source.dtype) not in _WIDENABLE:
        return None
    copy = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copy, loop, preserve_unit_loops=True)
    vectorize_innermost(sch, copy, lanes)
    return str(sch.get(copy).name_hint)


def guarded_like(func: tirx.PrimFunc, copy: str, stage: str) -> tirx.PrimFunc:
    """Let a copy of what a stage wrote be made only where the stage wrote something.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled.
    copy, stage : str
        Names of stages under the same loops. A copy that was moved there is not conditional.

    Returns
    -------
    tirx.PrimFunc
        The copy has the stage's condition besides its own.
    """
    found: list[Any] = []

    def find(realize: s_tir.SBlockRealize) -> None:
        if realize.block.name_hint == stage:
            found.append(realize.predicate)

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlockRealize, find)])
    (condition,) = found

    def visit(realize: s_tir.SBlockRealize) -> Any:
        if realize.block.name_hint != copy:
            return realize
        both = tirx.all(realize.predicate, condition)
        return s_tir.SBlockRealize(realize.iter_values, both, realize.block)

    body = tvm_ffi.structural_map(func.body, [(s_tir.SBlockRealize, visit)], order="post")
    return func.with_body(body)


def vectorize_innermost(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    """Vectorize a copy's last loop when it runs over exactly one vector.

    Parameters
    ----------
    sch : s_tir.Schedule
        It becomes wide there.
    block : SBlockRV
        A copy between memory and registers.
    lanes : int
        Of the vector.
    """
    loop = sch.get_loops(block)[-1]
    if loop_extent(sch, loop) == lanes:
        sch.vectorize(loop)


def split_lanes(sch: s_tir.Schedule, loops: list[Any], lanes: int) -> tuple[list[Any], Any | None]:
    """Cut vectors off the last loop, before loops are fused, so that their places stay plain.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    loops : list of LoopRV
        From the outermost.
    lanes : int
        Elements of a vector.

    Returns
    -------
    outer : list of LoopRV
        The loops over vectors.
    lane : LoopRV or None
        The one inside of a vector; None for single elements.
    """
    if lanes == 1:
        return loops, None
    outer, lane = sch.split(loops[-1], [None, lanes])
    return [*loops[:-1], outer], lane


def spatial_axes(sch: s_tir.Schedule, block: Any) -> list[Axis]:
    """A stage's axes that are not reduced over.

    Parameters
    ----------
    sch, block
        As :func:`~collage.backends.tvm.common.blocks.axes_of` takes them.

    Returns
    -------
    list[Axis]
        In the stage's order; empty where it has an axis that is not static.
    """
    return [axis for axis in axes_of(sch, block) or [] if not axis.reduce]


def is_map(stmt: Any) -> bool:
    """Whether a stage stores each element once, in order; a single number counts as one."""
    single = isinstance(stmt.body, tirx.BufferStore) and not len(stmt.body.indices)
    return is_elementwise(stmt) or (single and stmt.init is None and len(stmt.writes) == 1)


def inline_maps(
    sch: s_tir.Schedule, kept: list[Any] | tuple[()] = (), *, all_of_them: bool = True
) -> None:
    """Inline every stage without a reduction that is no output into the stages that read it.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    kept : sequence of SBlockRV
        Stages that stay.
    all_of_them : bool
        Whether one is inlined too that a reader loads several times, and which makes it much
        longer; otherwise the caller schedules what stays.
    """
    names = {sch.get(block).name_hint for block in [*kept, *sch.get_output_blocks("root")]}
    for block in root_blocks(sch):
        stmt = sch.get(block)
        reduces = any(axis.reduce for axis in axes_of(sch, block) or [])
        if stmt.name_hint in names or reduces or not is_map(stmt):
            continue
        if list(sch.get_consumers(block)) and (all_of_them or not multiplies(sch, block)):
            sch.compute_inline(block)
