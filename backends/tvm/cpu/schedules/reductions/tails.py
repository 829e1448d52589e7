"""Reductions of rows that are no multiple of a vector, by whole vectors.

The last one begins where it still ends inside. What it has in common with the one before it is left
out: its lanes have the element that changes nothing there. A row of 197 elements, added up one by
one, took its softmax three times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range, Var
from tvm.ir.expr import TensorLoad

from collage.backends.tvm.common.blocks import ReduceBlock
from collage.backends.tvm.common.numbers.rounding import with_buffers
from collage.backends.tvm.cpu.schedules._nest import put

_COMBINED = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


@dataclass(frozen=True)
class Cut:
    """How a reduction is cut to vectors.

    Attributes
    ----------
    first : int
        Of the stage's axes, the first one of those that are one contiguous run of elements.
    lanes : int
        Partial results of a row; none where there are not two vectors.
    ending : bool
        Whether the last vector overlaps, which :func:`reduce_in_whole_vectors` makes of it.
    """

    first: int
    lanes: int
    ending: bool = False


def may_overlap(stmt: Any) -> bool:
    """Whether a reduction is of sums, products or extremes, from which elements can be left out.

    Parameters
    ----------
    stmt : SBlock
        One or several results, such as a sum and that of squares.

    Returns
    -------
    bool
        False where its last axis is none that is reduced over.
    """
    if stmt.init is None or stmt.iter_vars[-1].iter_type != ReduceBlock:
        return False
    return _without(stmt.body, tirx.const(True, "bool"), stmt) is not None


def reduce_in_whole_vectors(func: tirx.PrimFunc, wanted: Mapping[int, int]) -> tirx.PrimFunc:
    """Reductions with two axes, vectors and lanes, in place of their last one.

    Parameters
    ----------
    func : tirx.PrimFunc
        Its stages' loops are their axes, one for one.
    wanted : mapping of int to int
        Lanes of a vector by the numbers of stages, from zero, which :func:`may_overlap`; not more
        than the axis has elements.

    Returns
    -------
    tirx.PrimFunc
        The other stages are as they were.
    """
    root = func.body.block
    stages = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    for number, lanes in wanted.items():
        stages[number] = _in_vectors(stages[number], lanes)
    body = tirx.SeqStmt(stages) if len(stages) > 1 else stages[0]
    block = with_buffers(root, body, list(root.alloc_buffers))
    realize = func.body
    return func.with_body(
        s_tir.SBlockRealize(realize.iter_values, realize.predicate, block, realize.span)
    )


def _in_vectors(stage: Any, lanes: int) -> Any:
    loops = []
    while isinstance(stage, tirx.For):
        loops.append(stage)
        stage = stage.body
    block = stage.block
    last = block.iter_vars[-1]
    kind, extent = str(last.var.ty), int(last.dom.extent)
    vector, lane = Var("vector", kind), Var("lane", kind)
    counts = -(-extent // lanes), lanes
    begin = tirx.min(vector * lanes, tirx.const(extent - lanes, kind))
    values = {last.var: begin + lane}
    # As 32-bit numbers, of which a register holds as many as of the elements.
    seen = (vector * lanes - begin).astype("int32")
    body = _without(put(block.body, values), lane.astype("int32") >= seen, block)
    axes = [
        tirx.IterVar(Range(tirx.const(0, kind), tirx.const(count, kind)), var, ReduceBlock)
        for count, var in zip(counts, (vector, lane), strict=True)
    ]
    block = s_tir.SBlock(
        [*block.iter_vars[:-1], *axes],
        [_region(region, values) for region in block.reads],
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
        block.span,
    )
    inner = [Var("vector", kind), Var("lane", kind)]
    made = s_tir.SBlockRealize([*stage.iter_values[:-1], *inner], stage.predicate, block)
    for var, count in reversed(list(zip(inner, counts, strict=True))):
        made = _serial(var, count, made)
    for loop in reversed(loops[:-1]):
        made = _serial(loop.loop_var, int(loop.extent), made)
    return made


def _without(body: Any, condition: Any, block: Any) -> Any | None:
    """What a reduction does, with what changes nothing where a condition does not hold."""
    first = block.init.seq if isinstance(block.init, tirx.SeqStmt) else [block.init]
    found = []

    def chosen(both: Any) -> Any:
        for store in first:
            if isinstance(both.a, TensorLoad) and both.a.source.same_as(store.buffer):
                found.append(store)
                return type(both)(both.a, tirx.Select(condition, both.b, store.value))
        return both

    body = tvm_ffi.structural_map(body, [(_COMBINED, chosen)])
    return body if len(found) == len(block.writes) == len(first) else None


def _serial(var: Var, count: int, body: Any) -> tirx.For:
    kind = str(var.ty)
    return tirx.For(var, tirx.const(0, kind), tirx.const(count, kind), tirx.ForKind.SERIAL, body)


def _region(region: Any, values: Mapping[Any, Any]) -> Any:
    ranges = [
        Range.from_min_extent(put(one.min, values), put(one.extent, values))
        for one in region.region
    ]
    return tirx.BufferRegion(region.source, ranges)


def lanes_of(extent: int, widest: int, least: int) -> tuple[int, bool]:
    """Lanes for a reduction along an axis, and whether its last vector overlaps.

    Parameters
    ----------
    extent : int
        Elements along the axis.
    widest : int
        Lanes of the largest vector.
    least : int
        Of the smallest one that divides the extent and is worth it.

    Returns
    -------
    tuple of int and bool
        No lanes where there are not two vectors.

    Examples
    --------
    >>> lanes_of(192, 16, 4), lanes_of(49, 16, 4), lanes_of(197, 16, 4), lanes_of(7, 16, 4)
    ((16, False), (16, True), (16, True), (0, False))
    """
    fitting = next((n for n in range(widest, least - 1, -1) if extent % n == 0), 0)
    whole = extent // fitting if fitting and extent >= 2 * fitting else 0
    overlapping = -(-extent // widest) if extent > widest else 0
    if overlapping and (not whole or overlapping < whole):
        return widest, True
    return (fitting, False) if whole else (0, False)
