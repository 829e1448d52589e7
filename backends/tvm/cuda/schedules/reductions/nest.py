"""The loops of one kernel with reductions: blocks, threads over results, threads over terms.

Around the stage that writes stand the blocks of threads and, bound to threads, its results. Under
them come the reductions, one after the other: every thread sums its terms in registers
(``rfactor``), and the threads of a result add up what they have. Then the writing stage goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import axes_of, fuse_all, loop_extent
from collage.backends.tvm.common.families import Refusal
from collage.backends.tvm.common.inlining import has_branches, reads_indices
from collage.backends.tvm.cuda.schedules._vector import (
    in_a_row,
    lanes_of,
    load_wide,
    store_wide,
    vectorize_innermost,
)
from collage.backends.tvm.cuda.schedules.reductions.plan import Plan, divisor
from collage.backends.tvm.cuda.schedules.reductions.stages import Results, Sum

_MOST_UNROLLED = 16


class Kernel:
    """One launch.

    Parameters
    ----------
    sch : s_tir.Schedule
        Changed in place.
    sums : sequence of Sum
        Reductions, in order, each shared between threads.
    points : sequence of str
        Names of stages that give one element per result.
    results : Results
        Of all of them.
    plan : Plan
        How threads share the work.
    """

    def __init__(
        self,
        sch: s_tir.Schedule,
        sums: Sequence[Sum],
        points: Sequence[str],
        results: Results,
        plan: Plan,
    ) -> None:
        self.sch = sch
        self.sums = sums
        self.points = points
        self.results = results
        self.plan = plan
        self.stored: str | None = None
        """The stage that stores what the writing stage left in registers, if there is one."""

    def build(self, writer: str | None, chunks: int = 1) -> Refusal | None:
        """Schedule it.

        Parameters
        ----------
        writer : str or None
            Name of the stage behind the reductions; where there is none, copies from registers.
        chunks : int
            Blocks of threads that write one block's results.

        Returns
        -------
        Refusal or None
            Why threads cannot have the writer's places; None where it is scheduled.
        """
        sch = self.sch
        copies = [] if writer else self._copies()
        stage = copies[0] if copies else sch.get_sblock(writer)
        places = self._places(stage) if not copies else list(sch.get_loops(stage))
        if isinstance(places, Refusal):
            return places
        for one in self.sums:
            for block in (sch.get_sblock(one.name), sch.get_sblock(one.shared)):
                for index in range(len(sch.get(block).writes)):
                    sch.set_scope(block, index, "local")
        threads, finish = self._open(stage, places, chunks, copied=bool(copies))
        depth = self._depth(stage, threads)
        if writer is not None:
            self._near({writer}, threads)
        for one in reversed(self.sums):
            for name in (one.name, one.shared):
                sch.compute_at(sch.get_sblock(name), threads, preserve_unit_loops=True)
        self._near({one.shared for one in self.sums}, threads)
        for one in self.sums:
            share, *others = list(sch.get_loops(sch.get_sblock(one.name)))[depth:]
            sch.reorder(*others, share)
            sch.bind(share, self.plan.q_tag)
            self._own_terms(one, depth)
        finish()
        return None

    def _depth(self, stage: Any, loop: Any) -> int:
        loops = [self.sch.get(other) for other in self.sch.get_loops(stage)]
        return next(i for i, other in enumerate(loops) if other.same_as(self.sch.get(loop))) + 1

    def _copies(self) -> list[Any]:
        """Stages that write the results out of registers, one for each tensor, in one nest."""
        sch = self.sch
        block = sch.get_sblock(self.sums[-1].name)
        count = len(sch.get(block).writes)
        copies = [sch.cache_write(block, index, "local") for index in range(count)]
        if count > 1:
            sch.merge(*(sch.get_loops(copy)[-1] for copy in copies))
        return copies

    def _near(self, readers: set[str], threads: Any) -> None:
        """Let every thread compute what these stages read of those of one element per result."""
        sch = self.sch
        own = set(readers)
        for name in reversed(self.points):
            block = sch.get_sblock(name)
            if {sch.get(reader).name_hint for reader in sch.get_consumers(block)} <= own:
                own.add(name)
                sch.set_scope(block, 0, "local")
                sch.compute_at(block, threads, preserve_unit_loops=True)

    def _places(self, stage: Any) -> list[Any] | Refusal:
        """For each axis of the results, the writing stage's loop over it."""
        sch = self.sch
        stmt, axes = sch.get(stage), axes_of(sch, stage) or []
        known = [*(one.name for one in self.sums), *self.points]
        buffers = [w.source for name in known for w in sch.get(sch.get_sblock(name)).writes]
        region = next(
            (r for r in stmt.reads if any(r.source.same_as(buffer) for buffer in buffers)), None
        )
        loops = list(sch.get_loops(stage))
        # A stage of one number has no axis, and the loop of one turn that it was given.
        if region is None or (axes and len(loops) != len(axes)):
            return Refusal("what follows the reductions does not read them")
        found: list[Any] = []
        taken: set[int] = set()
        # What follows from a result may have an axis more.
        for extent, place in zip(self.results.extents, region.region, strict=False):
            if extent == 1:
                found.append(None)
                continue
            divided = isinstance(place.min, tirx.FloorDiv)
            variable = place.min.a if divided else place.min
            number = next((i for i, a in enumerate(axes) if a.var.same_as(variable)), -1)
            if number < 0 or number in taken:
                return Refusal("what follows the reductions reads them in an odd order")
            taken.add(number)
            inner = 1
            if divided:
                if not isinstance(place.min.b, tirx.IntImm):
                    return Refusal("what follows the reductions reads them in an odd order")
                inner = int(place.min.b)
            if axes[number].extent != extent * inner:
                return Refusal("what follows the reductions reads a part of them")
            found.append(sch.split(loops[number], [extent, inner])[0] if divided else loops[number])
        return found

    def _open(
        self, stage: Any, places: list[Any], chunks: int, *, copied: bool
    ) -> tuple[Any, Callable[[], None]]:
        """Bind the writing stage's loops; gives the loop over results, and what is left to do."""
        sch, plan = self.sch, self.plan
        known = [sch.get(place) for place in places if place is not None]
        loops = list(sch.get_loops(stage)) or [sch.add_unit_loop(stage)]
        inside = [loop for loop in loops if not any(sch.get(loop).same_as(k) for k in known)]
        blocks, together, lane, thread = [], [], None, None
        for number, place in enumerate(places):
            if place is None:
                continue
            if self.results.shared[number]:
                together.append(place)
            elif number == self.results.column:
                if plan.lanes > 1:
                    place, lane = sch.split(place, [None, plan.lanes])
                block, thread = sch.split(place, [None, plan.p])
                blocks.append(block)
            else:
                blocks.append(place)
        lanes = plan.lanes if lane is not None else 1
        if lane is None and inside and not together:
            lanes = self._lanes(stage, inside[-1])
            if lanes > 1:
                last, lane = sch.split(inside[-1], [None, lanes])
                inside = [*inside[:-1], last]
        tail = [*together, *([lane] if lane is not None else [])]
        if not blocks:
            blocks = [sch.add_unit_loop(sch.get_loops(stage)[0])]
        if not inside:
            # One of the threads that share a result writes it.
            inside = [sch.add_unit_loop(sch.get_loops(stage)[0])]
        sch.reorder(*blocks, *([thread] if thread is not None else []), *inside, *tail)
        flat = fuse_all(sch, blocks)
        if thread is None and plan.p > 1:
            flat, thread = sch.split(flat, [None, plan.p])
        sch.bind(flat, "blockIdx.x")
        rest, under = fuse_all(sch, inside), flat
        chunks = divisor(loop_extent(sch, rest), chunks)
        if chunks > 1:
            under, rest = sch.split(rest, [chunks, None])
            if thread is not None:
                sch.reorder(under, thread)
            sch.bind(under, "blockIdx.y")
        if thread is not None:
            under = thread
            sch.bind(thread, plan.p_tag)

        def finish() -> None:
            # Only now: what is needed under a loop is not seen through conditions on others.
            _, shared = sch.split(rest, [None, plan.q])
            sch.bind(shared, plan.q_tag)
            if copied:
                if lane is not None and lanes > 1:
                    sch.vectorize(lane)
                return
            if lane is not None and lanes > 1 and self._writes_along(stage, lane):
                self.stored = store_wide(sch, stage, shared, lanes)
                load_wide(sch, stage, shared, lanes)
            for loop in tail:
                if loop_extent(sch, loop) <= _MOST_UNROLLED:
                    sch.unroll(loop)

        return under, finish

    def _lanes(self, stage: Any, loop: Any) -> int:
        """Elements that the writing stage stores at once, along its last axis."""
        sch = self.sch
        stmt, axes = sch.get(stage), axes_of(sch, stage) or []
        if has_branches(stmt) or reads_indices(stmt) or not axes:
            return 1
        last = sch.get_loops(stage)[-1]
        if not sch.get(last).same_as(sch.get(loop)) or not in_a_row(stmt.writes[0], axes[-1].var):
            return 1
        return lanes_of([stmt], loop_extent(sch, loop))

    def _writes_along(self, stage: Any, lane: Any) -> bool:
        sch = self.sch
        stmt, axes = sch.get(stage), axes_of(sch, stage) or []
        if has_branches(stmt) or reads_indices(stmt):
            return False
        innermost = sch.get(sch.get_loops(stage)[-1]).same_as(sch.get(lane))
        return innermost and in_a_row(stmt.writes[0], axes[-1].var)

    def _own_terms(self, one: Sum, depth: int) -> None:
        """The loops of the stage that sums a thread's own terms, in registers."""
        sch, plan = self.sch, self.plan
        block = sch.get_sblock(one.shared)
        every = list(sch.get_loops(block))[depth:]
        share = every[0]  # There is one loop for each axis, in their order.
        # A loop of a single turn may be gone.
        terms = every[one.terms] if one.terms >= 0 else sch.add_unit_loop(every[1])
        lane = [every[one.lane]] if one.wide else []
        loops = [loop for n, loop in enumerate(every) if n not in (0, one.terms, one.lane)]
        sch.reorder(share, terms, *loops, *lane)
        sch.bind(share, plan.q_tag)
        if plan.lanes > 1:
            self._load_wide(block, terms, one.lane)
        sch.decompose_reduction(block, terms)
        for loop in [*loops, *lane]:
            if 1 < loop_extent(sch, loop) <= _MOST_UNROLLED:
                sch.unroll(loop)

    def _load_wide(self, block: Any, terms: Any, number: int) -> None:
        """Let registers be filled by wide loads of what lies along the lanes."""
        sch, plan = self.sch, self.plan
        stmt = sch.get(block)
        if has_branches(stmt) or reads_indices(stmt):
            return
        if number >= 0:
            lane = stmt.iter_vars[number].var
        elif self.results.column is not None:
            # The share of a thread comes first, then the results.
            lane = stmt.iter_vars[1 + self.results.column].var
        else:
            return
        for index, region in enumerate(stmt.reads):
            if region.source.scope() not in ("", "global") or not in_a_row(region, lane):
                continue
            if any(region.source.same_as(write.source) for write in stmt.writes):
                continue
            copy = sch.cache_read(block, index, "local", [block])
            sch.compute_at(copy, terms, preserve_unit_loops=True)
            vectorize_innermost(sch, copy, plan.lanes)
