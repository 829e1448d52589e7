"""Resized images, channels first: what each element reads, and with which weights, is known.

Each axis is treated by itself: the few rows of the image that a row of the result lies between
become one, whole vectors at a time, and that one, which stays in the first-level cache, is picked
from by shuffles of constant places. TVM's own computes places and weights for each element, and
reads every row that an element lies between for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.relax.static_shape import tensor_shape
from collage.backends.tvm.common.blocks import PARALLEL_MIN_WORK
from collage.backends.tvm.common.bounds import INSIDE_ATTR
from collage.backends.tvm.common.families import WRITTEN_ATTR
from collage.backends.tvm.common.legalization import default_legalization
from collage.backends.tvm.cpu.images.taps import Taps, taps
from collage.backends.tvm.cpu.images.vectors import load, store, tiled
from collage.backends.tvm.cpu.schedules import Machine
from collage.backends.tvm.cpu.schedules._lanes import shuffled

_FARTHEST = 4
"""Times that an image may have been wider than its result: beyond, most of what the first step
makes of a row is never read."""

LONGEST_ROW = 8192
"""Elements of a row between: it is on the stack."""

_MOST_VECTORS = 96
"""Of a row of the result, each of which is written out in the kernel; longer ones read a table."""

_GROUP = 4
"""Rows between, made before any is read: a vector that was just stored at another place is not
there yet."""

_AT_ONCE = 4
_MOVED = ("float32", "float64", "int32", "int64", "int8", "uint8", "int16")


@dataclass(frozen=True)
class Kernel:
    """A resize of images of rows; ``weighted`` where elements are more than moved."""

    planes: int
    rows: Taps
    columns: Taps
    dtype: str
    lanes: int
    weighted: bool

    @property
    def between(self) -> bool:
        """Whether rows are made between: where several make one."""
        return self.weighted and not self.rows.changes_nothing

    def program(self, ins: Sequence[Any], out: Any, threads: int) -> tirx.Stmt:
        """The loops.

        Parameters
        ----------
        ins : sequence of tirx.Buffer
            The images, and the tables of both axes.
        out : tirx.Buffer
            The result.
        threads : int
            That share the work.

        Returns
        -------
        tirx.Stmt
            A sequence of them.
        """
        height, width = self.rows.after, self.columns.after
        group = min(_GROUP, height)
        groups = -(-height // group)
        shared = threads > 1 and self.planes * height * width >= PARALLEL_MIN_WORK
        by_plane = self.planes >= threads or groups == 1
        with IRBuilder() as ib:
            with T.seq_scope():
                x, places, weights, column_places, column_weights = (_row(one) for one in ins)
                y = _row(out)
                outer = T.parallel if shared and by_plane else T.serial
                inner = T.parallel if shared and not by_plane else T.serial
                with outer(0, self.planes) as plane, inner(0, groups) as number:
                    first = T.bind(tirx.min(number * group, height - group))
                    source = T.bind(plane * (self.rows.before * self.columns.before))
                    made = x
                    if self.between:
                        made = T.alloc_buffer(
                            (group * self.columns.before,), self.dtype, scope="local"
                        )
                        with T.serial(0, group) as line:
                            self._mix(x, made, (source, first + line, line), places, weights)
                    with T.serial(0, group) as line:
                        row: Any = tirx.BufferLoad(places, [first + line])
                        begin = source + row * self.columns.before
                        if self.rows.changes_nothing:
                            begin = source + (first + line) * self.columns.before
                        if self.between:
                            begin = line * self.columns.before
                        written = T.bind((plane * height + first + line) * width)
                        tables = column_places, column_weights
                        self._pick(made, y, T.bind(begin), written, tables)
            return ib.get()

    def _mix(self, x: Any, made: Any, at: tuple[Any, Any, Any], places: Any, weights: Any) -> None:
        """One row of those that it lies between."""
        source, number, line = at
        taps, height, width = self.rows.taps, self.rows.after, self.columns.before
        begins = [
            T.bind(source + tirx.BufferLoad(places, [tap * height + number]) * width)
            for tap in range(taps)
        ]
        parts = [T.bind(tirx.BufferLoad(weights, [tap * height + number])) for tap in range(taps)]

        def mixed(first: Any, side: int, count: int) -> None:
            for k in range(count):
                value: Any = None
                for begin, part in zip(begins, parts, strict=True):
                    wide = tirx.Broadcast(part, side) if side > 1 else part
                    term = load(x, begin + first + k * side, side) * wide
                    value = term if value is None else value + term
                store(made, value, line * width + first + k * side, side)

        tiled(width, self.lanes, _AT_ONCE, mixed)

    def _pick(self, row: Any, y: Any, begin: Any, written: Any, tables: tuple[Any, Any]) -> None:
        """One row of the result."""
        before, after = self.columns.before, self.columns.after
        if self.columns.changes_nothing:

            def moved(first: Any, side: int, count: int) -> None:
                for at in (first + k * side for k in range(count)):
                    store(y, load(row, begin + at, side), written + at, side)

            tiled(after, self.lanes, _AT_ONCE, moved)
            return
        side = 1 << (min(self.lanes, before, after).bit_length() - 1)
        starts = [min(at, after - side) for at in range(0, after, side)]
        if len(starts) > _MOST_VECTORS:
            with T.serial(0, after) as place:
                terms = [
                    self._weighted(
                        tirx.BufferLoad(
                            row,
                            [begin + tirx.BufferLoad(tables[0], [tap * after + place])],
                        ),
                        tables[1],
                        tap * after + place,
                        1,
                    )
                    for tap in range(self.columns.taps)
                ]
                store(y, _sum(terms), written + place, 1)
            return
        for start in starts:
            terms = [
                self._weighted(
                    self._lanes(row, begin, self.columns.places[tap, start : start + side], side),
                    tables[1],
                    tap * after + start,
                    side,
                )
                for tap in range(self.columns.taps)
            ]
            store(y, _sum(terms), written + start, side)

    def _weighted(self, value: Any, weights: Any, place: Any, side: int) -> Any:
        return value * load(weights, place, side) if self.weighted else value

    def _lanes(self, row: Any, begin: Any, places: NDArray[np.int32], side: int) -> Any:
        """Elements at places that are known, of the vectors that hold them."""
        if side == 1:
            return load(row, begin + int(places[0]), 1)
        last = self.columns.before - side
        first = min(int(places.min()), last)
        starts, at = [first], first
        while at + side <= int(places.max()):
            at = min(at + side, last)
            starts.append(at)
        vectors = [T.bind(load(row, begin + start, side)) for start in starts]
        lanes = []
        for place in map(int, places):
            which = next(k for k, start in enumerate(starts) if start <= place < start + side)
            lanes.append(which * side + place - starts[which])
        return vectors[0] if lanes == list(range(side)) else shuffled(vectors, lanes)


def _row(buffer: Any) -> Any:
    size = math.prod(int(extent) for extent in buffer.shape)
    return T.decl_buffer((size,), buffer.dtype, data=buffer.data, layout=None)


def _sum(terms: Sequence[Any]) -> Any:
    total, *others = terms
    for term in others:
        total = total + term
    return total


def legalize_resize(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr:
    """An interpolation of images with channels first; TVM's own for all else.

    Parameters
    ----------
    builder, call
        What makes the tensor program, and a resize along two axes.
    machine : Machine
        Vector lanes and threads.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    data, attrs = call.args[0], call.attrs
    before, after = tensor_shape(data), tensor_shape(call)
    method, dtype = str(attrs.method), str(call.ty.dtype)
    weighted = method in ("linear", "cubic")
    types = ("float32",) if weighted else _MOVED
    taken = str(attrs.layout) == "NCHW" and (weighted or method == "nearest_neighbor")
    same = str(data.ty.dtype) == dtype and dtype in types
    if before is None or after is None or 0 in (*before, *after) or not (taken and same):
        return default_legalization(builder, call)
    rows, columns = (taps(b, a, attrs) for b, a in zip(before[2:], after[2:], strict=True))
    if rows is None or columns is None or before[3] > _FARTHEST * after[3]:
        return default_legalization(builder, call)
    kernel = Kernel(before[0] * before[1], rows, columns, dtype, machine.lanes(dtype), weighted)
    if kernel.between and before[3] > LONGEST_ROW:
        return default_legalization(builder, call)
    if rows.changes_nothing and columns.changes_nothing:
        return builder.call_te(topi.identity, data, primfunc_name_hint="resize2d")
    return call_kernel(builder, data, after, kernel, machine.num_threads)


def call_kernel(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    wanted: Sequence[int],
    kernel: Kernel,
    threads: int,
) -> relax.Expr:
    """A call of the kernel's program.

    Parameters
    ----------
    builder : relax.BlockBuilder
        Takes the program.
    data : relax.Expr
        The images.
    wanted : sequence of int
        The shape of the result.
    kernel : Kernel
        What becomes of them.
    threads : int
        That share the work.

    Returns
    -------
    relax.Expr
        A call of the tensor program.
    """
    tables = [
        relax.const(table)
        for one in (kernel.rows, kernel.columns)
        for table in (one.places, one.weights)
    ]
    dtype = kernel.dtype

    def resized(*operands: te.Tensor) -> te.Tensor:
        return te.extern(
            [tuple(wanted)],
            list(operands),
            lambda ins, outs: kernel.program(ins, outs[0], threads),
            dtype=[dtype],
            in_buffers=[
                tirx.decl_buffer(one.shape, one.dtype, name, layout=None)
                for one, name in zip(operands, ("data", "r", "rw", "c", "cw"), strict=True)
            ],
            out_buffers=[tirx.decl_buffer(tuple(wanted), dtype, "resized", layout=None)],
            name="resized",
        )

    return builder.call_te(
        resized,
        data,
        *tables,
        primfunc_name_hint="resize2d",
        primfunc_attrs={INSIDE_ATTR: 1, WRITTEN_ATTR: 1},
    )
