"""Kernels with reductions, and the elementwise work before and after them, in one launch or two.

Sums over any axes, products of a few rows with a matrix, norms, softmax: whatever reduces (once, or
several times over the same places) and then writes one tensor. That tensor may be as large as the
results (a mean, a product) or as what was reduced (a norm): a block of threads computes its results
first, then writes what depends on them. What it is made of lies in ``reductions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import (
    axes_of,
    fuse_all,
    root_blocks,
    size_of,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.cuda.schedules._base import Gpu
from collage.backends.tvm.cuda.schedules._vector import guarded_like, inline_maps, is_map
from collage.backends.tvm.cuda.schedules.reductions.nest import Kernel
from collage.backends.tvm.cuda.schedules.reductions.plan import (
    MOST_TOGETHER,
    Access,
    Plan,
    access_of,
    plan_of,
)
from collage.backends.tvm.cuda.schedules.reductions.stages import (
    Results,
    Sum,
    renamed,
    share_terms,
)
from collage.backends.tvm.cuda.schedules.wmma import DTYPES

_BLOCKS_PER_SM = 4
"""Blocks that write what depends on a few results."""

_LEAST_WRITTEN = 16
"""Elements that a thread of theirs writes at least."""

_GROWS = 4
"""Times what is read that is written, from which on blocks sum again to share the writing."""

_LEAST_TERMS = 16
"""Fewer are best summed by a thread alone, where nothing that follows reads them again."""


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel whose reductions all have the same results, and one output.

    Parameters
    ----------
    func, gpu
        A kernel such as a sum, a norm, or a product of few rows, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, perhaps as two kernels; or why it cannot be, :data:`OTHER_KIND` where operands
        are not read at linear places.
    """
    sch = s_tir.Schedule(func)
    if any(axes_of(sch, block) is None for block in root_blocks(sch)):
        return Refusal("a stage has axes that are not static and independent")
    points = _points(sch)
    inline_maps(sch, points)
    sums = _reductions(sch)
    if not sums:
        return OTHER_KIND
    outputs = list(sch.get_output_blocks("root"))
    last = [block for block in root_blocks(sch) if not _is_in(sch, block, [*sums, *points])]
    if len(outputs) != 1 or len(last) > 1:
        return Refusal("several stages follow the reductions")
    if last and not is_map(sch.get(last[0])):
        return Refusal("what follows the reductions is not elementwise")
    accesses = [access_of(sch.get(block), axes_of(sch, block) or []) for block in sums]
    found = [access for access in accesses if access is not None]
    if len(found) < len(sums):
        # Windows that overlap, or places that are looked up.
        return OTHER_KIND
    refusal = _is_unfit(sch, sums, found, last)
    if refusal is not None:
        return refusal
    plan = plan_of(found[0], gpu, may_split=len(sums) == 1)
    if plan.p * plan.q > gpu.max_threads:
        return Refusal(f"{plan.p} results side by side are too many for one block")
    names = [sch.get(block).name_hint for block in sums]
    kept = [sch.get(block).name_hint for block in points]
    return _build(sch, names, kept, found, plan, gpu)


def _reductions(sch: s_tir.Schedule) -> list[Any]:
    return [b for b in root_blocks(sch) if any(a.reduce for a in axes_of(sch, b) or [])]


def _is_in(sch: s_tir.Schedule, block: Any, blocks: Sequence[Any]) -> bool:
    return any(sch.get(block).same_as(sch.get(other)) for other in blocks)


def _points(sch: s_tir.Schedule) -> list[Any]:
    """Stages of one or two elements per result that stay, for every thread to compute once.

    Some pick an element out of a tensor which others read as a whole: a stage's accesses to one
    tensor are seen as one region. Others are what follows from the results, two values of each.
    (One value would take the result's own place in the end, which threads share.)
    """
    sums = _reductions(sch)
    if not sums:
        return []
    results = size_of([a for a in axes_of(sch, sums[0]) or [] if not a.reduce])
    stages = [(block, size_of(axes_of(sch, block) or [])) for block in root_blocks(sch)]
    outputs = list(sch.get_output_blocks("root"))
    whole = [
        region.source
        for block, size in stages
        for region in sch.get(block).reads
        if size > 2 * results
    ]

    def stays(block: Any, size: int) -> bool:
        if not is_map(sch.get(block)) or _is_in(sch, block, outputs):
            return False
        if size == 2 * results:
            return int(sch.get(block).writes[0].source.shape[-1]) == 2
        reads = [region.source for region in sch.get(block).reads]
        return size == results and any(s.same_as(buffer) for s in reads for buffer in whole)

    return [block for block, size in stages if stays(block, size)]


def _is_unfit(
    sch: s_tir.Schedule, sums: Sequence[Any], accesses: Sequence[Access], last: Sequence[Any]
) -> Refusal | None:
    first = accesses[0]
    again = bool(last) and size_of(axes_of(sch, last[0]) or []) > first.results
    if first.terms < _LEAST_TERMS and not again:
        return Refusal(f"{first.terms} terms are best summed by a thread alone")
    halves = any(str(region.source.dtype) in DTYPES for region in sch.get(sums[0]).reads)
    # More rows of halves are for tensor cores.
    most = MOST_TOGETHER if halves else 2 * MOST_TOGETHER
    if first.together > most or (first.together > 1 and len(sums) > 1):
        return OTHER_KIND  # A matrix product.
    extents = [axis.extent for axis in first.spatial]
    for block, access in zip(sums, accesses, strict=True):
        if [axis.extent for axis in access.spatial] != extents:
            return Refusal("its reductions have different results")
        if (access.by_rows, access.terms) != (first.by_rows, first.terms):
            return Refusal("its reductions go different ways")
        own = [axis.var for axis in axes_of(sch, block) or [] if not axis.reduce]
        written = [write.source for other in sums for write in sch.get(other).writes]
        if not all(_at_own_place(region, own, written) for region in sch.get(block).reads):
            return Refusal("a reduction reads another's results elsewhere")
    if not last and len(sums) > 1:
        return Refusal("its last reduction is its output")
    return None


def _at_own_place(region: Any, own: Sequence[Any], written: Sequence[Any]) -> bool:
    """Whether a reduction reads this (if it is another one's result) at its own place only."""
    if not any(region.source.same_as(buffer) for buffer in written):
        return True
    return len(region.region) == len(own) and all(
        r.min.same_as(var) or isinstance(r.min, tirx.IntImm)
        for r, var in zip(region.region, own, strict=True)
    )


def _build(
    sch: s_tir.Schedule,
    names: list[str],
    points: list[str],
    accesses: Sequence[Access],
    plan: Plan,
    gpu: Gpu,
) -> tirx.PrimFunc | Refusal:
    """One kernel, or two: the first one sums parts of every result, the second one the parts."""
    for block in root_blocks(sch):
        # Stages of a single element have no loops, which ``rfactor`` beside them does not expect.
        if not list(sch.get_loops(block)):
            sch.add_unit_loop(block)
    first = accesses[0]
    wide = plan.by_rows and plan.lanes > 1
    for name, access in zip(names, accesses, strict=True):
        _order_terms(sch, name, access, plan.lanes if wide else 1)
    last = [b for b in root_blocks(sch) if sch.get(b).name_hint not in (*names, *points)]
    writer = sch.get(last[0]).name_hint if last else None
    results = Results.of(first)
    size = size_of(axes_of(sch, sch.get_sblock(writer)) or []) if writer else 0
    wanted = _BLOCKS_PER_SM * gpu.num_sms * plan.p // first.results
    most = size // first.results // (_LEAST_WRITTEN * plan.q)
    chunks = max(1, min(wanted, most))
    if plan.parts == 1:
        # Where much more is written than read, many blocks write, and each sums for itself.
        grows = size > _GROWS * first.results * first.terms
        sums = [Sum(name, wide, plan.q) for name in names]
        return _scheduled(sch, [(sums, plan, results, writer, chunks if grows else 1)], points)
    terms = sch.get_loops(sch.get_sblock(names[0]))[len(first.spatial)]
    part, _ = sch.split(terms, [plan.parts, None])
    partial = f"{names[0]}_part"
    sch = renamed(sch, sch.rfactor(part, 0), partial)
    own = access_of(sch.get(sch.get_sblock(names[0])), axes_of(sch, sch.get_sblock(names[0])) or [])
    if size <= first.results or own is None:
        if own is None:
            return Refusal("its parts are not read in a plain order")
        again, places, chunks = plan_of(own, gpu, may_split=False), Results.of(own), 1
    else:
        # What is written is as large as what was read: many blocks, each adds up the parts first.
        again, places = replace(plan, parts=1), results
    kernels: list[_Launch] = [
        ([Sum(partial, wide, plan.q)], plan, results.in_parts(plan.parts), None, 1),
        ([Sum(names[0], False, again.q)], again, places, writer, chunks),
    ]
    return _scheduled(sch, kernels, points)


_Launch = tuple[list[Sum], Plan, Results, "str | None", int]


def _scheduled(
    sch: s_tir.Schedule, kernels: Sequence[_Launch], points: list[str]
) -> tirx.PrimFunc | Refusal:
    shared = []
    for sums, *_ in kernels:
        mine = []
        for one in sums:
            sch, divided = share_terms(sch, one)
            mine.append(divided)
        shared.append(mine)
    stored: list[tuple[str, str]] = []
    for sums, (_, plan, results, writer, chunks) in zip(shared, kernels, strict=True):
        kernel = Kernel(sch, sums, points, results, plan)
        refusal = kernel.build(writer, chunks)
        if refusal is not None:
            return refusal
        if writer and kernel.stored:
            stored.append((kernel.stored, writer))
    func = sch.mod["main"]
    for copy, writer in stored:
        func = guarded_like(func, copy, writer)
    return func


def _order_terms(sch: s_tir.Schedule, name: str, access: Access, lanes: int) -> None:
    """Make one loop of all that is summed, in the order of memory, and one of a load's elements."""
    block = sch.get_sblock(name)
    axes, loops = axes_of(sch, block) or [], list(sch.get_loops(block))
    by_axis = {axis.var: loop for axis, loop in zip(axes, loops, strict=True)}
    spatial = [by_axis[axis.var] for axis in access.spatial]
    terms = [by_axis[axis.var] for axis in access.reduced]
    if len(loops) > 1:
        sch.reorder(*spatial, *terms)
    if lanes > 1:
        # The fastest of the axes has the smallest step, but for those of a single place.
        number = list(access.reduced).index(access.fastest)
        terms = [*terms[:number], *terms[number + 1 :], terms[number]]
        sch.reorder(*terms)
        outer, _ = sch.split(terms[-1], [None, lanes])
        terms = [*terms[:-1], outer]
    fuse_all(sch, terms)
