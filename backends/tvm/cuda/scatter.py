"""Scatters on a GPU: a thread for each update.

TOPI's kernels have a thread for each place beside the one that indices choose, and that goes
through all indices: messages along the edges of a graph were added by as many threads as a node has
features, points of a grid written by one.

Many sums of few elements, as of a histogram, are made in the shared memory of each block first, for
threads wait for each other where they add to one element.

Sums, products and extremes are made by the memory; narrower types than its own are kept in float32
before. Of updates of one place the last counts, as it does elsewhere here:
each place gets to know the highest number of its updates before any is written, unless all
updates are one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.launch import kernel
from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.common.scatter import Scatter
from collage.backends.tvm.cuda.atomics import ADD, MAX, UPDATE, combine, has_atomic
from collage.backends.tvm.cuda.rows.lines import MULTIPROCESSORS

_THREADS = 256

_MOST_SHARED_ELEMENTS, _LEAST_SHARED = 2048, 16
"""Elements of the data up to which blocks have sums of their own, and how many updates for each of
them there are at least."""

_SHARED_THREADS, _BLOCKS = 512, 2 * MULTIPROCESSORS
"""Of a block with its own sums, and how many there are at most."""

_FEW, _FEW_PUT = 2, 8
"""Indices up to which one thread after the other may as well go through them."""


def legalize_scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``data`` with ``updates`` reduced with or put at places of its first axes, which are indexed.

    Parameters
    ----------
    builder, call
        What makes the tensor programs, and a ``relax.scatter_nd``.

    Returns
    -------
    relax.Expr
        TVM's own for types that memory does not reduce, and where there are few indices.
    """
    if not _is_ours(call, math.prod(static_shape(call.args[1])[:-1])):
        return default_legalization(builder, call)
    return _emit(builder, call, Scatter.of_rows(call))


def legalize_scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``data`` with ``updates`` reduced with or put at places of an axis that is indexed.

    Parameters
    ----------
    builder, call
        What makes the tensor programs, and a ``relax.scatter_elements``.

    Returns
    -------
    relax.Expr
        TVM's own for types that memory does not reduce, and where there are few indices.
    """
    shape, taken = (static_shape(arg) for arg in call.args[:2])
    axis = int(call.attrs.axis) % len(shape)
    if not _is_ours(call, taken[axis]) or static_shape(call.args[2]) != taken:
        return default_legalization(builder, call)
    return _emit(builder, call, Scatter.of_elements(call))


def _is_ours(call: relax.Call, indices: int) -> bool:
    reduction = str(call.attrs.reduction)
    some = math.prod(static_shape(call)) > 0
    if reduction == UPDATE:
        return some and indices > _FEW_PUT
    return some and indices > _FEW and has_atomic(reduction, str(call.ty.dtype))


def _is_uniform(updates: relax.Expr) -> bool:
    """Whether it does not matter which of them is last."""
    if not isinstance(updates, GenericConst):
        return False
    values = updates.value.numpy().reshape(-1)
    return bool((values == values[:1]).all())


def _emit(builder: relax.BlockBuilder, call: relax.Call, scatter: Scatter) -> relax.Expr:
    reduction = str(call.attrs.reduction)
    put_there = reduction == UPDATE
    in_order = put_there and not _is_uniform(call.args[2])
    dtype = str(call.ty.dtype)
    numbers = scatter.size // scatter.row

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        x, chosen, updates = (T.buffer_proxy(each) for each in ins)
        out, *last = (T.buffer_proxy(each) for each in outs)

        def copy(number: Any) -> None:
            with T.seq_scope():
                out[number] = x[number]
                if in_order:
                    with T.If(number % scatter.row == 0), T.Then():
                        last[0][number // scatter.row] = -1

        def reduce(number: Any) -> None:
            place = scatter.place(chosen, number)
            with T.If(tirx.all(*place.inside)), T.Then(), T.seq_scope():
                combine(reduction, dtype, out[place.element], updates[number])

        def claim(number: Any) -> None:
            place = scatter.place(chosen, number * scatter.row)
            with T.If(tirx.all(*place.inside)), T.Then():
                own = last[0][place.element // scatter.row]
                combine(MAX, "int32", own, number.astype("int32"))

        def put(number: Any) -> None:
            place = scatter.place(chosen, number)
            with T.If(tirx.all(*place.inside)), T.Then():
                if not in_order:
                    out[place.element] = updates[number]
                    return
                is_last = last[0][place.element // scatter.row] == number // scatter.row
                with T.If(is_last), T.Then():
                    out[place.element] = updates[number]

        with IRBuilder() as ib:
            with T.seq_scope():
                _each(scatter.size, copy)
                if put_there:
                    if in_order:
                        _each(scatter.count // scatter.row, claim)
                    _each(scatter.count, put)
                elif reduction == ADD and _is_crowded(scatter):
                    _add_in_blocks(scatter, dtype, (chosen, updates, out))
                else:
                    _each(scatter.count, reduce)
            return ib.get()

    def scattered(x: te.Tensor, chosen: te.Tensor, updates: te.Tensor) -> Any:
        outs = [tirx.decl_buffer(x.shape, dtype, "out_buf", layout=None)]
        if in_order:
            outs.append(tirx.decl_buffer((numbers,), "int32", "last_buf", layout=None))
        return te.extern(
            [buffer.shape for buffer in outs],
            [x, chosen, updates],
            program,
            dtype=[str(buffer.dtype) for buffer in outs],
            in_buffers=[
                tirx.decl_buffer(each.shape, each.dtype, name)
                for each, name in ((x, "data"), (chosen, "indices"), (updates, "updates"))
            ],
            out_buffers=outs,
            name="scattered",
        )

    found = builder.call_te(scattered, *call.args, primfunc_name_hint="scattered")
    return relax.TupleGetItem(builder.emit(found), 0) if in_order else found


def _is_crowded(scatter: Scatter) -> bool:
    few = scatter.size <= _MOST_SHARED_ELEMENTS
    return few and scatter.count >= _LEAST_SHARED * max(scatter.size, _SHARED_THREADS)


def _add_in_blocks(scatter: Scatter, dtype: str, buffers: Sequence[Any]) -> None:
    """Each block adds its part of the updates up, and then to the result."""
    chosen, updates, out = buffers
    threads = _SHARED_THREADS
    blocks = min(_BLOCKS, math.ceil(scatter.count / threads))
    with kernel(blocks, threads) as (block, own), T.seq_scope():
        sums = T.buffer_proxy(T.alloc_buffer((scatter.size,), dtype, scope="shared"))
        # TVM lets no condition read what is shared.
        mine = T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))

        def each_element(body: Callable[[Any], None]) -> None:
            with T.serial(0, math.ceil(scatter.size / threads)) as turn:
                element = turn * threads + own
                with T.If(element < scatter.size), T.Then(), T.seq_scope():
                    body(element)

        def clear(element: Any) -> None:
            sums[element] = tirx.const(0, dtype)

        def hand_over(element: Any) -> None:
            mine[0] = sums[element]
            with T.If(mine[0] != tirx.const(0, dtype)), T.Then():
                combine(ADD, dtype, out[element], mine[0])

        each_element(clear)
        _wait()
        with T.serial(0, math.ceil(scatter.count / (blocks * threads))) as turn:
            number = (turn * blocks + block) * threads + own
            with T.If(number < scatter.count), T.Then(), T.seq_scope():
                place = scatter.place(chosen, number)
                with T.If(tirx.all(*place.inside)), T.Then():
                    combine(ADD, dtype, sums[place.element], updates[number])
        _wait()
        each_element(hand_over)


def _wait() -> None:
    T.evaluate(tvm.ir.Call("tirx.tvm_storage_sync", ["shared"], ret_ty="void"))


def _each(count: int, body: Callable[[Any], None]) -> None:
    """A kernel with a thread for each of so many."""
    with kernel(-(-count // _THREADS), _THREADS) as (block, own):
        thread = block * _THREADS + own
        if count % _THREADS:
            with T.If(thread < count), T.Then():
                body(thread)
        else:
            body(thread)
