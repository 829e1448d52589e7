"""Loops along which an operand begins anew every few steps, cut where it does.

LLVM's loop vectorizer (version 22, which TVM compiles with) may read a row of four at ``k % 4`` as
eight in a row where a loop has many reads: it takes the place for a counter of two bits and forgets
that such a counter wraps. So no remainder by a power of two is left in the innermost loop that is
not yet vectors: cut by the divisor, a loop has none; where the divisor does not divide it, TVM
makes the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Range, Var
from tvm.ir.expr import TensorLoad

from collage.backends.tvm.common.blocks import element_dtype, loop_extent, root_blocks
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules._nest import put


def cut_repeating(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Cut the innermost loop of each stage where an operand begins anew.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled kernel.
    machine : Machine
        Vector lanes.

    Returns
    -------
    tirx.PrimFunc
        The same where no operand's place is a loop's variable modulo a power of two.

    Examples
    --------
    >>> from tvm import te
    >>> x, y = te.placeholder((4,), name="x"), te.placeholder((4, 8), name="y")
    >>> z = te.compute((32,), lambda k: x[k % 4] * y[k % 4, k // 4], name="z")
    >>> machine = Machine(vector_bytes=32, num_registers=16, num_threads=4)
    >>> func = cut_repeating(te.create_prim_func([x, y, z]), machine)
    >>> [line.strip() for line in func.script().splitlines() if "T.grid" in line]
    ['for k_0, k_1 in T.grid(8, 4):']
    """
    if not _has_stages(func) or not _has_remainders(func):
        return func
    sch = s_tir.Schedule(func)
    for block in root_blocks(sch):
        loop = None if _is_written_out(sch, block) else _innermost(sch, block)
        if loop is not None:
            _cut(sch, block, loop, machine)
    return sch.mod["main"]


def _has_stages(func: tirx.PrimFunc) -> bool:
    """Whether loops around stages are a schedule's; otherwise the whole kernel is written out."""
    body = func.body
    return isinstance(body, s_tir.SBlockRealize) and str(body.block.name_hint) == "root"


def _has_remainders(func: tirx.PrimFunc) -> bool:
    stop = tvm_ffi.VisitInterrupt()
    return tvm_ffi.structural_walk(func.body, [(tirx.FloorMod, lambda _: stop)]) is not None


def _is_written_out(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether a stage has loops inside, or does not say what it writes: vectors of our own."""
    stage, stop = sch.get(block), tvm_ffi.VisitInterrupt()
    inside = tvm_ffi.structural_walk(stage.body, [(tirx.For, lambda _: stop)])
    return inside is not None or len(stage.writes) == 0


def _innermost(sch: s_tir.Schedule, block: Any) -> Any | None:
    """The loop that LLVM sees as the innermost; none where a stage is vectors already."""
    for loop in reversed(sch.get_loops(block)):
        kind = sch.get(loop).kind
        if kind == tirx.ForKind.VECTORIZED:
            return None
        if kind != tirx.ForKind.UNROLLED:
            return loop
    return None


def _cut(sch: s_tir.Schedule, block: Any, loop: Any, machine: Machine) -> None:
    whole, others = _divisors(sch, block, loop)
    extent = loop_extent(sch, loop)
    lanes = machine.lanes(element_dtype(sch, block))
    if others:
        _, inner = sch.split(loop, [None, min(lanes, extent)])
        sch.vectorize(inner)
    elif whole:
        steps = [high // low for low, high in pairwise([1, *whole])]
        sch.split(loop, [None, *reversed(steps)])


def _divisors(sch: s_tir.Schedule, block: Any, loop: Any) -> tuple[Sequence[int], Sequence[int]]:
    """The powers of two by which remainders along a loop are taken in places of operands.

    First those of the loop's own variable that divide the loop, in order; then all others.
    """
    analyzer = sym.Analyzer()
    for each in map(sch.get, sch.get_loops(block)):
        analyzer.bind(each.loop_var, Range.from_min_extent(each.min, each.extent))
    var, extent = sch.get(loop).loop_var, loop_extent(sch, loop)
    whole, others = set[int](), set[int]()

    def note(remainder: tirx.FloorMod) -> None:
        by = int(remainder.b) if isinstance(remainder.b, tirx.IntImm) else 1
        if by < 2 or by & (by - 1) or not _holds(remainder.a, var):
            return
        rest = analyzer.modular_set(analyzer.simplify(remainder.a - var))
        aligned = rest.coeff % by == 0 and rest.base % by == 0
        (whole if aligned and extent % by == 0 else others).add(by)

    for place in _places(sch, block):
        tvm_ffi.structural_walk(analyzer.simplify(place), [(tirx.FloorMod, note)])
    return sorted(whole), sorted(others)


def _places(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """The indices of all reads of a stage, by its loops' variables."""
    stage = sch.get(block)
    values = dict[Any, Any]()

    def found(realize: s_tir.SBlockRealize) -> None:
        if realize.block.same_as(stage):
            pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
            values.update({axis.var: value for axis, value in pairs})

    tvm_ffi.structural_walk(sch.mod["main"].body, [(s_tir.SBlockRealize, found)])
    places = list[Any]()
    tvm_ffi.structural_walk(stage.body, [(TensorLoad, lambda load: places.extend(load.indices))])
    return [put(place, values) for place in places]


def _holds(expr: Any, var: Any) -> bool:
    stop = tvm_ffi.VisitInterrupt()
    found = tvm_ffi.structural_walk(
        expr, [(Var, lambda other: stop if other.same_as(var) else None)]
    )
    return found is not None
