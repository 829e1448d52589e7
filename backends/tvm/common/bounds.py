"""Places that data choose stay inside of their tensor: what lies outside of it is nobody's.

A gather reads and a scatter writes where a tensor of places says. TVM's kernels trust it: a token
that the vocabulary lacks reads memory of somebody else, or ends the process. Here such a read takes
the nearest element that there is, and such a write is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

INSIDE_ATTR = "collage.inside"
"""Of a kernel whose places come from tables of its own, made when it was: none is looked at."""


def keep_inside(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel that touches nothing outside of its tensors, whatever places it is given.

    Only indices that follow from loaded values are held: the others follow from loops, whose
    extents are the tensors' own.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled or not.

    Returns
    -------
    tirx.PrimFunc
        The same loops; itself where all indices follow from loops.

    Examples
    --------
    >>> from tvm import te
    >>> x, i = te.placeholder((9,), "float32", name="x"), te.placeholder((4,), "int32", name="i")
    >>> func = te.create_prim_func([x, i, te.compute((4,), lambda a: x[i[a]], name="y")])
    >>> print(keep_inside(func).script().splitlines()[-1].strip())
    y[v_a] = x[T.max(T.min(i[v_a], 8), 0)]
    """
    if func.attrs.get(INSIDE_ATTR):
        return func
    chosen = _chosen_by_data(func.body)
    analyzer = sym.Analyzer()

    def may_leave(index: Any, extent: Any) -> bool:
        if not _follows(index, chosen):
            return False
        known = analyzer.const_int_bound(index)
        return bool(known.min_value < 0 or known.max_value >= int(extent))

    def load(expr: TensorLoad) -> Any:
        indices = [
            _nearest(index, int(extent)) if may_leave(index, extent) else index
            for index, extent in zip(expr.indices, expr.source.shape, strict=True)
        ]
        same = all(new is old for new, old in zip(indices, expr.indices, strict=True))
        return expr if same else tirx.BufferLoad(expr.source, indices)

    def store(stmt: tirx.BufferStore) -> Any:
        within = [
            tirx.And(_signed(place) >= 0, _signed(place) < int(extent))
            for place, extent in zip(stmt.indices, stmt.buffer.shape, strict=True)
            if may_leave(place, extent)
        ]
        return tirx.IfThenElse(reduce(tirx.And, within), stmt, None) if within else stmt

    body = tvm_ffi.structural_map(func.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return func if body.same_as(func.body) else func.with_body(body)


def _nearest(index: Any, extent: int) -> Any:
    place = _signed(index)
    return tirx.max(tirx.min(place, tirx.const(extent - 1, place.ty)), tirx.const(0, place.ty))


def _signed(index: Any) -> Any:
    """An index that can be compared with any extent."""
    return index if str(index.ty) in ("int32", "int64") else tirx.Cast("int64", index)


def _chosen_by_data(body: Any) -> set[Var]:
    """Variables whose values follow from what is loaded."""
    bound: list[tuple[Var, Sequence[Any]]] = []

    def block(realize: s_tir.SBlockRealize) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            bound.append((axis.var, [value]))

    tvm_ffi.structural_walk(
        body,
        [
            (tirx.Bind, lambda stmt: bound.append((stmt.var, [stmt.value]))),
            (tirx.Let, lambda expr: bound.append((expr.var, [expr.value]))),
            (tirx.For, lambda loop: bound.append((loop.loop_var, [loop.min, loop.extent]))),
            (s_tir.SBlockRealize, block),
        ],
    )
    chosen: set[Var] = set()
    while True:
        more = {var for var, values in bound if var not in chosen and _any_follows(values, chosen)}
        if not more:
            return chosen
        chosen |= more


def _any_follows(values: Sequence[Any], chosen: set[Var]) -> bool:
    return any(_follows(value, chosen) for value in values)


def _follows(expr: Any, chosen: set[Var]) -> bool:
    """Whether a value follows from what is loaded."""
    found: list[bool] = []
    tvm_ffi.structural_walk(
        expr,
        [
            (TensorLoad, lambda _: found.append(True)),
            (Var, lambda var: found.append(var in chosen)),
        ],
    )
    return any(found)
