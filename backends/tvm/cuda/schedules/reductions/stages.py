"""Reductions of a kernel, and how one is divided among threads before any loop is bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from collage.backends.tvm.cuda.schedules.reductions.plan import Access


@dataclass(frozen=True)
class Results:
    """The results of a reduction: extents of their axes, and what the plan makes of each.

    Attributes
    ----------
    extents : tuple of int
        Of the axes that are not reduced.
    shared : tuple of bool
        Axes whose results are computed by the same threads, from the same loads.
    column : int or None
        The axis whose results lie side by side, where the plan goes by columns.
    """

    extents: tuple[int, ...]
    shared: tuple[bool, ...]
    column: int | None

    @classmethod
    def of(cls, access: Access) -> Results:
        """Those of a reduction that reads its operand so."""
        column = None if access.by_rows else list(access.spatial).index(access.fastest)
        return cls(tuple(axis.extent for axis in access.spatial), access.shared, column)

    def in_parts(self, parts: int) -> Results:
        """The same with a leading axis of parts."""
        column = None if self.column is None else self.column + 1
        return Results((parts, *self.extents), (False, *self.shared), column)


@dataclass(frozen=True)
class Sum:
    """A reduction whose innermost loops are the one over its terms and, if so, over lanes.

    Attributes
    ----------
    name : str
        Of the stage.
    wide : bool
        Whether there is a loop over the elements of one load.
    threads : int
        That share its terms.
    shared : str
        The stage that sums a thread's own terms; empty until there is one.
    terms, lane : int
        Which of that stage's axes runs over its terms, and which over the elements of a load; -1
        where there is none.
    """

    name: str
    wide: bool
    threads: int
    shared: str = ""
    terms: int = -1
    lane: int = -1


def share_terms(sch: s_tir.Schedule, one: Sum) -> tuple[s_tir.Schedule, Sum]:
    """Divide a reduction's terms among threads, each of which sums its own first.

    Parameters
    ----------
    sch : s_tir.Schedule
        The new one is to be used from then on.
    one : Sum
        The reduction.

    Returns
    -------
    tuple[s_tir.Schedule, Sum]
        The schedule, and the reduction with the stage that sums a thread's own terms.
    """
    loops = list(sch.get_loops(sch.get_sblock(one.name)))
    terms = loops[-2] if one.wide else loops[-1]
    _, thread = sch.split(terms, [None, one.threads])
    block = sch.rfactor(thread, 0)
    inner = [sch.get(loop).loop_var for loop in sch.get_loops(block)]
    places = list(sch.get(sch.get_loops(block)[-1]).body.iter_values)

    def axis(loop: Any) -> int:
        return next((n for n, place in enumerate(places) if loop.same_as(place)), -1)

    own = f"{one.name}_own"
    lane = axis(inner[-1]) if one.wide else -1
    one = replace(one, shared=own, terms=axis(inner[-3 if one.wide else -2]), lane=lane)
    return renamed(sch, block, own), one


def renamed(sch: s_tir.Schedule, block: Any, name: str) -> s_tir.Schedule:
    """Name a stage anew, and put the condition on its loops, if there is one, into its body.

    What is computed under another stage's loops loses conditions on several of its own.

    Parameters
    ----------
    sch : s_tir.Schedule
        The new one is to be used from then on.
    block : SBlockRV
        The stage.
    name : str
        Its new name.

    Returns
    -------
    s_tir.Schedule
        Of the function as it stands then; handles of the old one do not hold in it.
    """
    old = sch.get(block).name_hint

    def visit(realize: s_tir.SBlockRealize) -> Any:
        stage = realize.block
        if stage.name_hint != old:
            return realize
        body = stage.body
        if not (isinstance(realize.predicate, tirx.IntImm) and int(realize.predicate) == 1):
            variables = [iter_var.var for iter_var in stage.iter_vars]
            places = dict(zip(realize.iter_values, variables, strict=True))
            swap = [(tirx.Var, lambda loop: places.get(loop, loop))]
            condition = tvm_ffi.structural_map(realize.predicate, swap, order="post")
            body = tirx.IfThenElse(condition, body, None)
        new = s_tir.SBlock(stage.iter_vars, stage.reads, stage.writes, name, body, stage.init)
        return s_tir.SBlockRealize(realize.iter_values, True, new)

    func = sch.mod["main"]
    body = tvm_ffi.structural_map(func.body, [(s_tir.SBlockRealize, visit)], order="post")
    return s_tir.Schedule(func.with_body(body))
