"""Sorts on a GPU of rows that are not long: each element counts those that come before it.

A sort by exchanges has a hundred steps that wait for each other, or kernels. Here nothing waits: a
thread reads its row once, and knows the place of its element. That is quadratic, and for rows of a
hundred to some thousand elements, which a GPU's threads read all at once, much the faster.

Equal elements stay in their order, and what is no number comes behind all numbers, as in NumPy; in
a descending order before them, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.ir import Op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.numbers.rounding import WIDE

_MOST_COMPARISONS = 1 << 29
"""Of all rows, some 50 microseconds on an H100; from there on exchanges are faster."""

_THREADS = 128
_SORTS = ("relax.sort", "relax.argsort", "relax.topk")
_COMPARED_AS = {
    **dict.fromkeys(["float16", "bfloat16", WIDE], WIDE),
    "float64": "float64",
    **dict.fromkeys(["bool", "int8", "int16", "int32", "uint8", "uint16"], "int32"),
    **dict.fromkeys(["int64", "uint32"], "int64"),
}


@dataclass(frozen=True)
class _Order:
    """What is sorted, and how much of it is wanted.

    Attributes
    ----------
    length : int
        Of the axis.
    behind : int
        Elements between two that are neighbours along it.
    taken : int
        How many of the first are wanted.
    descending : bool
        Largest first.
    """

    length: int
    behind: int
    taken: int
    descending: bool


def rank_sorts() -> tvm.transform.Pass:
    """The pass that gives sorts of short rows such kernels; the others are left to TVM's.

    Before TVM's own for sorts and scans, which takes all of them.

    Examples
    --------
    >>> from collage.testing import graph
    >>> mod = graph([(4, 64)], lambda _, x: relax.op.sort(x, axis=1))
    >>> [str(gvar.name_hint) for gvar in rank_sorts()(mod).get_global_vars()]
    ['main', 'ranked']
    """

    def rank(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        mutator = _Ranker(mod)
        for var, func in mod.functions.items():
            if isinstance(func, relax.Function):
                mutator.builder_.update_func(var, mutator.visit_expr(func))
        return mutator.builder_.get()

    return tvm.transform.module_pass(rank, opt_level=0, name="RankSorts")


@relax.expr_functor.mutator
class _Ranker(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        visited = super().visit_call_(call)
        if isinstance(call.op, Op) and str(call.op.name) in _SORTS:
            ranked = _ranked(self.builder_, call, visited.args[0])
            return visited if ranked is None else ranked
        return visited


def _ranked(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr | None:
    """None for long rows, for types that cannot be compared, and where there is nothing to sort."""
    name, attrs, shape = str(call.op.name), call.attrs, static_shape(call.args[0])
    size = math.prod(shape)
    if not shape or not size or str(call.args[0].ty.dtype) not in _COMPARED_AS:
        return None
    axis = int(attrs.axis) % len(shape)
    if size * shape[axis] > _MOST_COMPARISONS:
        return None
    chosen = name == "relax.topk"
    taken = int(attrs.k) if chosen and int(attrs.k) > 0 else shape[axis]
    order = _Order(
        shape[axis],
        math.prod(shape[axis + 1 :]),
        min(taken, shape[axis]),
        bool(attrs.largest) if chosen else bool(attrs.descending),
    )
    wanted = {"relax.sort": "values", "relax.argsort": "indices"}.get(name)
    wanted = wanted or str(attrs.ret_type)
    types = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
    results = [(static_shape(each), str(each.dtype)) for each in types]
    has_values = wanted in ("values", "both")

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        with IRBuilder() as ib:
            with kernel(-(-size // _THREADS), _THREADS) as (block, own):
                element = block * _THREADS + own
                with T.If(element < size), T.Then():
                    _place(ins[0], outs, element, order, has_values)
            return ib.get()

    def ranked(data: te.Tensor) -> Any:
        return te.extern(
            [shape for shape, _ in results],
            [data],
            program,
            dtype=[kind for _, kind in results],
            in_buffers=[tirx.decl_buffer(data.shape, data.dtype, "data")],
            out_buffers=[
                tirx.decl_buffer(shape, kind, f"ordered_{place}")
                for place, (shape, kind) in enumerate(results)
            ],
            name="ranked",
        )

    return builder.call_te(ranked, x, primfunc_name_hint="ranked")


def _place(data: Any, outs: Sequence[Any], element: Any, order: _Order, has_values: bool) -> None:
    """Put one element where it belongs, if that is among those that are wanted."""
    kind = _COMPARED_AS[str(data.dtype)]
    x = T.buffer_proxy(data)
    own = element // order.behind % order.length
    first = element - own * order.behind
    count = T.alloc_buffer((1,), "int32", scope="local")
    mine = T.alloc_buffer((1,), kind, scope="local")
    before, value = T.buffer_proxy(count), T.buffer_proxy(mine)
    before[0] = 0
    value[0] = x[element].astype(kind)
    with T.serial(0, order.length) as other:
        compared = x[first + other * order.behind].astype(kind)
        comes = _comes_before(compared, value[0], other < own, kind, order.descending)
        before[0] += tirx.Select(comes, tirx.const(1, "int32"), tirx.const(0, "int32"))
    with T.If(before[0] < order.taken), T.Then():
        row = first // (order.length * order.behind)
        within = first % order.behind
        to = (row * order.taken + before[0]) * order.behind + within
        rest = list(outs)
        if has_values:
            T.buffer_proxy(rest.pop(0))[to] = x[element]
        for indices in rest:
            T.buffer_proxy(indices)[to] = own.astype(str(indices.dtype))


def _comes_before(other: Any, own: Any, earlier: Any, kind: str, descending: bool) -> Any:
    """Whether another element of the row, which may be an earlier one, comes before one's own."""
    ahead = other > own if descending else other < own
    usual = tirx.any(ahead, tirx.all(other == own, earlier))
    if "int" in kind:
        return usual
    none, own_none = tirx.isnan(other), tirx.isnan(own)
    if descending:
        return tirx.Select(own_none, tirx.all(none, earlier), tirx.any(usual, none))
    return tirx.Select(own_none, tirx.any(tirx.Not(none), earlier), usual)
