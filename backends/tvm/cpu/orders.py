"""The order of rows on a processor: ranks of short rows, and digits of long ones.

TVM's own kernels sort pairs by comparisons, which are hard to foresee. A short row's ranks are
counted, by vectors that compare all with all; a long row is dealt by some bits at a time, lowest
first, which keeps equal values in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import static_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.legalization import Legalization, default_legalization
from collage.backends.tvm.common.numbers.exact import EXACT
from collage.backends.tvm.cpu.schedules import Machine

_SHORT = 64
_FEW_BITS, _MANY_BITS = (8, 4), (11, 3)
"""Bits of a digit, and digits; a long row is dealt once less, into more buckets."""

_LONG = 4096
_FEW = 32
"""TVM's kernel is faster where no more than one in so many of a longer row are wanted."""


@dataclass(frozen=True)
class _Rows:
    """Rows along an axis, and what is wanted of their order.

    Attributes
    ----------
    count, extent, inner : int
        How many rows, how long, and how far apart neighbours lie.
    wanted : int
        How many from the first on.
    descending : bool
        Equal values are in the order of their places, all the same.
    """

    count: int
    extent: int
    inner: int
    wanted: int
    descending: bool

    def place(self, row: Any, number: Any, extent: int) -> Any:
        return row // self.inner * (extent * self.inner) + number * self.inner + row % self.inner


def orders(machine: Machine) -> dict[str, Legalization]:
    """Legalizations of what sorts, by operator name.

    Parameters
    ----------
    machine : Machine
        Threads share rows.

    Returns
    -------
    dict of str to Legalization
        Of float32 and int32; TVM's own of other types.
    """

    def argsort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        extent = _extent(call)
        if extent is None:
            return EXACT["relax.argsort"](builder, call)
        rows = _rows(call, extent, bool(call.attrs.descending))
        return _ordered(builder, call, rows, machine, [str(call.ty.dtype)])

    def sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if _extent(call) is None:
            return EXACT["relax.sort"](builder, call)
        (x,), attrs = call.args, call.attrs
        places = relax.op.argsort(x, int(attrs.axis), bool(attrs.descending), "int64")
        found = builder.emit(argsort(builder, builder.normalize(places)))
        gathered = relax.op.gather_elements(x, found, int(attrs.axis))
        return default_legalization(builder, builder.normalize(gathered))

    def topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        extent, attrs = _extent(call), call.attrs
        k = int(attrs.k)
        if extent is None or not 1 <= k <= extent or (extent > _SHORT and k * _FEW <= extent):
            return EXACT["relax.topk"](builder, call)
        results = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
        rows = _rows(call, k, bool(attrs.largest))
        return _ordered(builder, call, rows, machine, [str(part.dtype) for part in results])

    return {"relax.argsort": argsort, "relax.sort": sort, "relax.topk": topk}


def _extent(call: relax.Call) -> int | None:
    (x,) = call.args
    shape = static_shape(x)
    if not shape or 0 in shape or str(x.ty.dtype) not in ("float32", "int32"):
        return None
    extent = shape[int(call.attrs.axis) % len(shape)]
    return extent if extent < 1 << 31 else None


def _rows(call: relax.Call, wanted: int, descending: bool) -> _Rows:
    shape = static_shape(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    extent = shape[axis]
    return _Rows(
        count=math.prod(shape) // extent,
        extent=extent,
        inner=math.prod(shape[axis + 1 :]),
        wanted=wanted,
        descending=descending,
    )


def _ordered(
    builder: relax.BlockBuilder,
    call: relax.Call,
    rows: _Rows,
    machine: Machine,
    kinds: Sequence[str],
) -> relax.Expr:
    (x,) = call.args
    values = str(getattr(call.attrs, "ret_type", "indices")) != "indices"
    kind = str(x.ty.dtype)
    shape = list(static_shape(x))
    shape[int(call.attrs.axis) % len(shape)] = rows.wanted
    work = rows.count * rows.extent * 8
    shared = machine.num_threads > 1 and rows.count > 1 and work >= PARALLEL_MIN_WORK

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        given, found = T.buffer_proxy(ins[0]), [T.buffer_proxy(out) for out in outs]

        def key(row: Any, number: Any) -> Any:
            return _key(given[rows.place(row, number, rows.extent)], kind, rows.descending)

        def put(row: Any, rank: Any, number: Any) -> None:
            at = rows.place(row, rank, rows.wanted)
            if values:
                found[0][at] = given[rows.place(row, number, rows.extent)]
            if not values or len(found) > 1:
                found[-1][at] = number.astype(str(outs[-1].dtype))

        write = _by_ranks if rows.extent <= _SHORT else _by_digits
        with IRBuilder() as ib:
            with T.seq_scope(), (T.parallel if shared else T.serial)(0, rows.count) as row:
                write(rows, row, key, put)
            return ib.get()

    def ordered(data: te.Tensor) -> Any:
        return te.extern(
            [shape] * len(kinds),
            [data],
            program,
            dtype=list(kinds),
            in_buffers=[tirx.decl_buffer(data.shape, kind, "data", layout=None)],
            out_buffers=[
                tirx.decl_buffer(shape, each, f"out_buf{i}", layout=None)
                for i, each in enumerate(kinds)
            ],
            name="ordered",
        )

    return builder.call_te(ordered, x, primfunc_name_hint="ordered")


def _key(value: Any, kind: str, descending: bool) -> Any:
    """A whole number that is in order where the value is; what is no number is the largest."""
    found = value
    if kind == "float32":
        bits = tirx.reinterpret("int32", value)
        zero, most = tirx.const(0, "int32"), tirx.const(0x7FFFFFFF, "int32")
        size = bits & most
        signed = tirx.Select(bits < zero, zero - size, bits)
        found = tirx.Select(size > tirx.const(0x7F800000, "int32"), most, signed)
    return tirx.const(-1, "int32") - found if descending else found


_Key = Callable[[Any, Any], Any]
_Put = Callable[[Any, Any, Any], None]


def _by_ranks(rows: _Rows, row: Any, key: _Key, put: _Put) -> None:
    extent = rows.extent
    keys = T.buffer_proxy(T.alloc_buffer((extent,), "int32", scope="local"))
    ranks = T.buffer_proxy(T.alloc_buffer((extent,), "int32", scope="local"))
    with T.serial(0, extent) as i, T.seq_scope():
        keys[i] = key(row, i)
        ranks[i] = tirx.const(0, "int32")
    one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
    with T.serial(0, extent) as other, T.vectorized(0, extent) as i:
        # Of equal ones those behind it have it before them.
        same = tirx.all(keys[other] == keys[i], other < i)
        before = tirx.any(keys[other] < keys[i], same)
        ranks[i] = ranks[i] + tirx.Select(before, one, zero)
    with T.serial(0, extent) as i:
        if rows.wanted == extent:
            put(row, ranks[i], i)
        else:
            with T.If(ranks[i] < rows.wanted), T.Then(), T.seq_scope():
                put(row, ranks[i], i)


def _by_digits(rows: _Rows, row: Any, key: _Key, put: _Put) -> None:
    extent = rows.extent
    bits, digits = _MANY_BITS if extent >= _LONG else _FEW_BITS
    buckets = 1 << bits
    buffers = [
        T.buffer_proxy(T.alloc_buffer((extent,), "uint64", scope="global")) for _ in range(2)
    ]
    begins = T.buffer_proxy(T.alloc_buffer((digits * buckets,), "int32", scope="global"))
    total = T.buffer_proxy(T.alloc_buffer((2,), "int32", scope="local"))

    def wide(value: int) -> Any:
        return tirx.const(value, "uint64")

    def bucket(pair: Any, digit: int) -> Any:
        place = (pair >> wide(32 + digit * bits)) & wide(buckets - 1)
        return place.astype("int32") + tirx.const(digit * buckets, "int32")

    one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
    with T.serial(0, digits * buckets) as i:
        begins[i] = zero
    with T.serial(0, extent) as i, T.seq_scope():
        above = tirx.reinterpret("uint32", key(row, i)) ^ tirx.const(0x80000000, "uint32")
        buffers[0][i] = (above.astype("uint64") << wide(32)) | i.astype("uint64")
        for digit in range(digits):
            at = bucket(buffers[0][i], digit)
            begins[at] = begins[at] + one
    for digit in range(digits):
        total[0] = zero
        with T.serial(0, buckets) as i, T.seq_scope():
            total[1] = begins[i + digit * buckets]
            begins[i + digit * buckets] = total[0]
            total[0] = total[0] + total[1]
    for digit in range(digits):
        source, target = buffers[digit % 2], buffers[1 - digit % 2]
        with T.serial(0, extent) as i, T.seq_scope():
            at = bucket(source[i], digit)
            target[begins[at]] = source[i]
            begins[at] = begins[at] + one
    with T.serial(0, rows.wanted) as i:
        put(row, i, (buffers[digits % 2][i] & wide(0xFFFFFFFF)).astype("int32"))
