"""Loops over elements that are no multiple of a vector, by whole vectors.

The last one begins where it still ends inside, and computes some elements again. Cut by a predicate
such a loop took three times as long, and what LLVM makes of it computes the end one by one: with
polynomials inside, longer than all the rest.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

from collage.backends.tvm.common.blocks import loop_extent
from collage.backends.tvm.cpu.schedules._nest import loads_of, put

_ANNOTATION = "collage.overlap"
_LEAST = 4
"""Lanes of a vector: LLVM computes three elements as well one by one."""


def overlapping(sch: s_tir.Schedule, block: Any, loop: Any, lanes: int) -> bool:
    """Have :func:`cut_overlapping` make whole vectors of a loop.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place; nothing else may be done to the loop afterwards.
    block : SBlockRV
        What the loop is about, which is no reduction.
    loop : LoopRV
        Innermost, along elements that are neighbours in all that is accessed.
    lanes : int
        Of the largest vector.

    Returns
    -------
    bool
        Whether the loop has a vector's elements, and may compute one twice.
    """
    stmt = sch.get(block)
    extent = loop_extent(sch, loop)
    side = min(lanes, 1 << (extent.bit_length() - 1))
    if side < _LEAST or not isinstance(stmt.body, tirx.BufferStore):
        return False
    # TVM may put what a kernel keeps where its operand was, which is gone then the second time.
    own = sch.get(sch.get_sblock("root")).alloc_buffers
    kept = any(stmt.body.buffer.same_as(buffer) for buffer in own)
    inside = [*own, stmt.body.buffer] if kept else [stmt.body.buffer]
    for load in loads_of(stmt.body.value):
        if any(load.source.same_as(buffer) for buffer in inside):
            return False
    sch.annotate(loop, _ANNOTATION, side)
    return True


def cut_overlapping(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with loops over whole vectors where :func:`overlapping` wanted them.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled.

    Returns
    -------
    tirx.PrimFunc
        A loop that threads share is shared by vectors.
    """

    def cut(loop: tirx.For) -> Any:
        lanes = loop.annotations.get(_ANNOTATION) if loop.annotations else None
        if lanes is None:
            return loop
        lanes, extent, kind = int(lanes), int(loop.extent), str(loop.loop_var.ty)
        number, lane = Var("vector", kind), Var("lane", kind)
        begin = tirx.min(number * lanes, tirx.const(extent - lanes, kind))
        body = put(loop.body, {loop.loop_var: begin + lane})
        zero, width = tirx.const(0, kind), tirx.const(lanes, kind)
        inner = tirx.For(lane, zero, width, tirx.ForKind.VECTORIZED, body)
        count = tirx.const(-(-extent // lanes), kind)
        return tirx.For(number, zero, count, loop.kind, inner)

    return func.with_body(tvm_ffi.structural_map(func.body, [(tirx.For, cut)]))
