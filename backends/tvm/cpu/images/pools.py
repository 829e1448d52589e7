"""Pools of any window, channels first: axes one after the other, rows of vectors at a time.

The largest of a window is the largest of what its columns' largest are, and a sum likewise: of 13
by 13 elements 26 are looked at instead of 169. What columns give is a row that stays in the first
cache, with room for the padding at its ends, so that no element along it is asked where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.calls.pooling import SPATIAL, PoolPadding
from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.families import WRITTEN_ATTR
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cpu.images.vectors import load, store, tiled
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.cpu.schedules._lanes import shuffled

_TYPES = ("float32", "float64", "int8", "uint8", "int32")
_LONGEST_ROW = 4096
"""Elements of a row between: it is on the stack."""

_WIDEST_STEP = 4
"""Elements from one window to the next up to which whole vectors are read and picked from."""

_AT_ONCE = 4
"""Vectors of a row in registers while columns are walked down."""

_GROUP = 8
"""Rows between: read right after it was written, by vectors that begin elsewhere, a row is not
there yet."""

_MOST_UNROLLED = 32
"""Elements of a column."""

_FEWEST = 4
"""Windows along a row: what is pooled whole has a reduction's schedule."""


@dataclass(frozen=True)
class _Pool:
    """The figures of a pool; sequences have depth, height and width, 1 where there is none."""

    planes: int
    given: tuple[int, int, int]
    made: tuple[int, int, int]
    window: tuple[int, int, int]
    step: tuple[int, int, int]
    dilation: tuple[int, int, int]
    before: tuple[int, int, int]
    dtype: str
    largest: bool
    padding_counts: bool

    @property
    def span(self) -> int:
        """Elements of a row from the first window's begin to the last one's end."""
        return (self.made[2] - 1) * self.step[2] + (self.window[2] - 1) * self.dilation[2] + 1

    @property
    def beginning(self) -> Any:
        """What changes nothing."""
        if not self.largest:
            return tirx.const(0, self.dtype)
        if "float" in self.dtype:
            return tirx.const(float("-inf"), self.dtype)
        return tirx.const(int(np.iinfo(self.dtype).min), self.dtype)

    def both(self, left: Any, right: Any) -> Any:
        """Of two parts of a window."""
        return tirx.max(left, right) if self.largest else left + right


def legalize_pool(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """A largest or an average of windows along rows; TVM's own in other layouts and types.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a call of ``nn.max_pool…d`` or ``nn.avg_pool…d``.
    machine : Machine
        Vector lanes and threads.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    pool = _pool_of(call)
    if pool is None:
        return default_legalization(builder, call)
    shape = tensor_shape(call) or ()

    def program(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        return _program(pool, ins[0], outs[0], machine)

    def pooled(x: te.Tensor) -> te.Tensor:
        return te.extern(
            [shape],
            [x],
            program,
            dtype=[pool.dtype],
            in_buffers=[tirx.decl_buffer(x.shape, x.dtype, "data", layout=None)],
            out_buffers=[tirx.decl_buffer(shape, x.dtype, "pooled", layout=None)],
            name="pooled",
        )

    name = str(call.op.name).rpartition(".")[2]
    return builder.call_te(
        pooled, call.args[0], primfunc_name_hint=name, primfunc_attrs={WRITTEN_ATTR: 1}
    )


def _pool_of(call: relax.Call) -> _Pool | None:
    attrs, name = call.attrs, str(call.op.name)
    rank = len(attrs.pool_size)
    given, made = tensor_shape(call.args[0]), tensor_shape(call)
    layout, dtype = f"NC{SPATIAL[rank]}", str(call.ty.dtype)
    largest = "max" in name
    if given is None or made is None or 0 in (*given, *made) or dtype not in _TYPES:
        return None
    if str(attrs.layout) != layout or str(attrs.out_layout) not in ("", layout):
        return None
    padding = PoolPadding.of(call)

    def three(values: Sequence[int], other: int) -> tuple[int, int, int]:
        one, two, last = [other] * (3 - rank) + [int(value) for value in values]
        return one, two, last

    pool = _Pool(
        planes=given[0] * given[1],
        given=three(given[2:], 1),
        made=three(made[2:], 1),
        window=three(attrs.pool_size, 1),
        step=three(attrs.strides, 1),
        dilation=three(attrs.dilation, 1),
        before=three(padding.before, 0),
        dtype=dtype,
        largest=largest,
        padding_counts=largest or bool(attrs.count_include_pad),
    )
    near = not padding.exceeded and set(pool.dilation) == {1}
    averaged = largest or (dtype == "float32" and near)
    wide = pool.made[2] >= _FEWEST and pool.span <= _LONGEST_ROW
    return pool if averaged and wide and _all_reach(pool) else None


def _all_reach(pool: _Pool) -> bool:
    """Whether each window has an element of the data along each axis."""
    for axis in range(3):
        for number in range(pool.made[axis]):
            begin = number * pool.step[axis] - pool.before[axis]
            places = range(
                begin, begin + pool.window[axis] * pool.dilation[axis], pool.dilation[axis]
            )
            if not any(0 <= place < pool.given[axis] for place in places):
                return False
    return True


def _program(pool: _Pool, data: Any, out: Any, machine: Machine) -> tirx.Stmt:
    rows = pool.made[0] * pool.made[1]
    group = min(_GROUP, rows)
    groups = -(-rows // group)
    work = math.prod((pool.planes, *pool.made, *pool.window[:2]))
    shared = machine.num_threads > 1 and work >= PARALLEL_MIN_WORK
    planes_shared = pool.planes >= machine.num_threads or groups == 1
    with IRBuilder() as ib:
        with T.seq_scope():
            x, y = (
                T.decl_buffer(
                    (pool.planes * math.prod(extents),), pool.dtype, data=each.data, layout=None
                )
                for each, extents in ((data, pool.given), (out, pool.made))
            )
            outer = T.parallel if shared and planes_shared else T.serial
            inner = T.parallel if shared and not planes_shared else T.serial
            with outer(0, pool.planes) as plane, inner(0, groups) as number:
                first = T.bind(tirx.min(number * group, rows - group))
                _rows(pool, x, y, plane, first, group, machine)
        return ib.get()


def _rows(
    pool: _Pool, x: Any, y: Any, plane: Any, first: Any, group: int, machine: Machine
) -> None:
    """Some rows of windows: what columns give of all of them, then along each."""
    lanes, width = machine.lanes(pool.dtype), pool.given[2]
    length = max(pool.span, pool.before[2] + width) + lanes * pool.step[2]
    between = T.alloc_buffer((group * length,), pool.dtype, scope="local")
    margins = [(0, pool.before[2]), (pool.before[2] + width, pool.span)]
    with T.serial(0, group) as number:
        start = number * length
        for begin, end in margins:
            if end > begin:
                with T.serial(begin, end) as margin:
                    T.buffer_store(between, pool.beginning, [start + margin])
        _columns(pool, x, between, (plane, first + number, start + pool.before[2]), lanes)
    with T.serial(0, group) as number:
        _windows(pool, between, y, (plane, first + number, number * length), lanes)


def _columns(pool: _Pool, x: Any, between: Any, at: tuple[Any, Any, Any], lanes: int) -> None:
    """What the columns of a row's windows give."""
    plane, number, start = at
    depth, height, width = pool.given
    place = tirx.floordiv(number, pool.made[1]), tirx.floormod(number, pool.made[1])
    limits = [_taps(pool, axis, place[axis]) for axis in (0, 1)]
    fixed = all(isinstance(limit, int) for pair in limits for limit in pair)

    def line(kd: Any, kh: Any) -> Any:
        z = place[0] * pool.step[0] - pool.before[0] + kd * pool.dilation[0]
        row = place[1] * pool.step[1] - pool.before[1] + kh * pool.dilation[1]
        return ((plane * depth + z) * height + row) * width

    def whole(first: Any, side: int, count: int) -> None:
        begins = [
            T.bind(line(kd, kh) + first)
            for kd in range(pool.window[0])
            for kh in range(pool.window[1])
        ]
        for k in range(count):
            value = T.bind(load(x, begins[0] + k * side, side))
            for begin in begins[1:]:
                value = T.bind(pool.both(value, load(x, begin + k * side, side)))
            store(between, value, start + first + k * side, side)

    def limited(first: Any, side: int, count: int) -> None:
        sums = T.alloc_buffer((side * count,), pool.dtype, scope="local")
        for k in range(count):
            store(sums, _broadcast(pool.beginning, side), k * side, side)
        with T.serial(*limits[0]) as kd, T.serial(*limits[1]) as kh:
            begin = T.bind(line(kd, kh) + first)
            for k in range(count):
                value = pool.both(load(sums, k * side, side), load(x, begin + k * side, side))
                store(sums, value, k * side, side)
        for k in range(count):
            store(between, load(sums, k * side, side), start + first + k * side, side)

    short = math.prod(pool.window[:2]) <= _MOST_UNROLLED
    tiled(width, lanes, _AT_ONCE, whole if fixed and short else limited)


def _windows(pool: _Pool, between: Any, y: Any, at: tuple[Any, Any, Any], lanes: int) -> None:
    """The windows of a row."""
    plane, number, start = at
    place = tirx.floordiv(number, pool.made[1]), tirx.floormod(number, pool.made[1])
    seen: Any = None
    if not pool.padding_counts:
        limits = [_taps(pool, axis, place[axis]) for axis in (0, 1)]
        seen = T.bind(tirx.const(1, "int32") * math.prod(high - low for low, high in limits))
    begin = T.bind((plane * math.prod(pool.made[:2]) + number) * pool.made[2])

    def windows(first: Any, side: int, count: int) -> None:
        for k in range(count):
            begins = first + k * side
            value = _along(pool, between, start, begins, side)
            store(y, _averaged(pool, value, begins, side, seen), begin + begins, side)

    tiled(pool.made[2], lanes, 1, windows)


def _taps(pool: _Pool, axis: int, place: Any) -> tuple[Any, Any]:
    """The first element of a window that lies in the data, and the one behind the last."""
    begin = place * pool.step[axis] - pool.before[axis]
    dilation, window = pool.dilation[axis], pool.window[axis]
    reach = (pool.made[axis] - 1) * pool.step[axis] + (window - 1) * dilation - pool.before[axis]
    if not pool.before[axis] and reach < pool.given[axis]:
        return 0, window
    low = tirx.max(tirx.floordiv(dilation - 1 - begin, dilation), 0)
    high = tirx.min(tirx.floordiv(pool.given[axis] - 1 - begin, dilation) + 1, window)
    return T.bind(low), T.bind(high)


def _along(pool: _Pool, row: Any, start: Any, first: Any, side: int) -> Any:
    """Windows side by side, of a row."""
    step, dilation = pool.step[2], pool.dilation[2]

    def tap(offset: int) -> Any:
        at = start + first * step + offset * dilation
        if step == 1 or side == 1:
            return load(row, at, side)
        if step <= _WIDEST_STEP:
            vectors = [T.bind(load(row, at + k * side, side)) for k in range(step)]
            return shuffled(vectors, [lane * step for lane in range(side)])
        return tirx.Shuffle(
            [tirx.BufferLoad(row, [at + lane * step]) for lane in range(side)],
            [tirx.const(lane, "int32") for lane in range(side)],
        )

    value = T.bind(tap(0))
    for offset in range(1, pool.window[2]):
        value = T.bind(pool.both(value, tap(offset)))
    return value


def _averaged(pool: _Pool, value: Any, first: Any, side: int, seen: Any) -> Any:
    if pool.largest:
        return value
    if seen is None:
        return value / _broadcast(tirx.const(float(math.prod(pool.window)), pool.dtype), side)
    places = tirx.Ramp(first, 1, side) if side > 1 else first
    begin = places * _broadcast(pool.step[2], side) - _broadcast(pool.before[2], side)
    low = tirx.max(begin, _broadcast(0, side))
    high = tirx.min(begin + _broadcast(pool.window[2], side), _broadcast(pool.given[2], side))
    return value / ((high - low) * _broadcast(seen, side)).astype(f"{pool.dtype}x{side}")


def _broadcast(value: Any, side: int) -> Any:
    scalar = tirx.const(value, "int32") if isinstance(value, int) else value
    return tirx.Broadcast(scalar, side) if side > 1 else scalar
