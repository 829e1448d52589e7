"""Values that an expression names, in memory of a vector each, which LLVM keeps in registers.

TVM's code generation puts the value of each ``let`` in place of its variable to learn about it, so
that its time is exponential in how many are nested: nine took half a minute.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, Var

from collage.backends.tvm.cpu.schedules._nest import put


def store_named(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace the named values of stages that store one element each.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled.

    Returns
    -------
    tirx.PrimFunc
        What is computed on a condition only keeps its names.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    kept, within = list[Any](), list[Any]()

    def vectors(loop: tirx.For) -> Any:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return loop
        store = _only_store(loop.body)
        parts = [] if store is None else _taken_apart(store, loop, kept)
        if not parts:
            tvm_ffi.structural_walk(loop, [(s_tir.SBlock, within.append)])
            return loop
        return tirx.SeqStmt([_vector(loop, part) for part in parts])

    def scalars(block: s_tir.SBlock) -> Any:
        own = list[Any]()
        lone = isinstance(block.body, tirx.BufferStore) and block.init is None
        if not lone or any(block.same_as(other) for other in within):
            return block
        parts = _taken_apart(block.body, None, own)
        return _changed(block, tirx.SeqStmt(parts), own) if parts else block

    body = tvm_ffi.structural_map(func.body, [(tirx.For, vectors)])
    body = tvm_ffi.structural_map(body, [(s_tir.SBlock, scalars)])
    if kept:
        root = _changed(body.block, body.block.body, kept)
        body = s_tir.SBlockRealize(list(body.iter_values), body.predicate, root)
    return func.with_body(body)


def _changed(block: s_tir.SBlock, body: Any, buffers: list[Any]) -> s_tir.SBlock:
    """A block with another body and further memory."""
    return s_tir.SBlock(
        *(list(block.iter_vars), list(block.reads), list(block.writes), block.name_hint, body),
        *(block.init, [*block.alloc_buffers, *buffers], list(block.match_buffers)),
        *(block.annotations, block.span),
    )


def _only_store(body: Any) -> tirx.BufferStore | None:
    """What a loop stores, in its own terms, where it is one element each time."""
    if isinstance(body, tirx.BufferStore):
        return body
    if not isinstance(body, s_tir.SBlockRealize) or body.block.init is not None:
        return None
    always = isinstance(body.predicate, tirx.IntImm) and int(body.predicate)
    if not always or not isinstance(body.block.body, tirx.BufferStore):
        return None
    places = [axis.var for axis in body.block.iter_vars]
    return put(body.block.body, dict(zip(places, body.iter_values, strict=True)))


def _vector(loop: tirx.For, store: tirx.BufferStore) -> tirx.For:
    """A loop over what one store is about, with a variable of its own."""
    var = Var("lane", str(loop.loop_var.ty))
    return tirx.For(var, loop.min, loop.extent, loop.kind, put(store, {loop.loop_var: var}))


def _taken_apart(store: Any, loop: tirx.For | None, kept: list[Any]) -> list[Any]:
    """The stores of all named values and the one of the result; their memory goes to ``kept``."""
    values = _named_in(store.value)
    count, place = (int(loop.extent), loop.loop_var - loop.min) if loop else (1, 0)
    memory = {
        var: tirx.decl_buffer((count,), str(var.ty), f"kept_{len(kept) + i}", scope="local")
        for i, var in enumerate(values)
    }
    loads = {var: tirx.BufferLoad(buffer, [place]) for var, buffer in memory.items()}

    def plain(expr: Any) -> Any:
        def body(let: tirx.Let) -> Any:
            return let.body if let.var in memory else let

        return put(tvm_ffi.structural_map(expr, [(tirx.Let, body)]), loads)

    kept.extend(memory.values())
    stores = [
        tirx.BufferStore(buffer, plain(values[var]), [place]) for var, buffer in memory.items()
    ]
    last = tirx.BufferStore(store.buffer, plain(store.value), list(store.indices))
    return [*stores, last] if stores else []


def _named_in(expr: Any) -> dict[Var, Any]:
    """The values of all names that are not given on a condition, each behind those it needs."""
    conditional = set[Var]()

    def choice(call: Call) -> None:
        if isinstance(call.op, Op) and str(call.op.name).endswith(".if_then_else"):
            for part in call.args[1:]:
                conditional.update(let.var for let in _lets(part))

    tvm_ffi.structural_walk(expr, [(Call, choice)])
    found = {let.var: let.value for let in _lets(expr) if let.var not in conditional}
    ordered = dict[Var, Any]()

    def add(var: Var) -> None:
        if var in found and var not in ordered:
            for other in _variables(found[var]):
                add(other)
            ordered[var] = found[var]

    for var in found:
        add(var)
    return ordered


def _lets(expr: Any) -> list[tirx.Let]:
    lets = list[tirx.Let]()
    tvm_ffi.structural_walk(expr, [(tirx.Let, lets.append)])
    return lets


def _variables(expr: Any) -> list[Var]:
    variables = dict[Var, None]()
    tvm_ffi.structural_walk(expr, [(Var, lambda var: variables.setdefault(var) or None)])
    return list(variables)
