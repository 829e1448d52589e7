"""Depthwise convolutions of short rows or many taps: a channel's rows one behind the other.

Each channel is padded into a small buffer, where what a tap contributes to all results, whatever
their row, is one run of elements. So vectors are whole for any width, several of them are added up
in registers over all taps, and what is computed between the rows is left out in the end. Elements
that a stride apart are runs, too, as the buffer has each phase's by itself.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    PARALLEL_MIN_WORK,
    int64,
    loop_extent,
    other_blocks,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import generic
from collage.backends.tvm.cpu.schedules._epilogue import find_block, fold_epilogue
from collage.backends.tvm.cpu.schedules.conv_plan import ConvShape
from collage.backends.tvm.cpu.schedules.overlapping import overlapping

_ANNOTATION = "collage.flat_depthwise"
_AT_ONCE = (8, 7, 6, 5, 4)
"""Vectors whose sums are in registers: one addition takes four cycles."""

_MANY_TAPS = 25
_LARGEST_IMAGE = 65536
"""Elements of a channel, which has to stay in the caches twice."""


@dataclass(frozen=True)
class _Layout:
    """Where a padded image's elements are: phases one behind the other, each of them by rows."""

    shape: ConvShape
    lanes: int

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        shape = self.shape
        return -(-(shape.padding[1] + shape.width + shape.padding[3]) // shape.strides[1])

    @property
    def vectors(self) -> int:
        """Of results, with those between the rows, which nobody reads."""
        places = (self.shape.out_height - 1) * self.pitch + self.shape.out_width
        count = -(-places // self.lanes)
        return min(-(-count // n) * n for n in _AT_ONCE) if count > 2 else count

    @property
    def rows(self) -> int:
        """Of a phase's image."""
        most = max(self.offset(*tap)[1] for tap in self.taps)
        return -(-(self.vectors * self.lanes + most) // self.pitch)

    @property
    def taps(self) -> list[tuple[int, int]]:
        rows, columns = self.shape.kernel
        return list(itertools.product(range(rows), range(columns)))

    def offset(self, row: int, column: int) -> tuple[int, int]:
        """A tap's phase, and where in its image the first result finds it."""
        (down, right), (along, across) = self.shape.strides, self.shape.dilation
        y, x = row * along, column * across
        return y % down * right + x % right, y // down * self.pitch + x // right


def pays(shape: ConvShape, lanes: int) -> bool:
    """Whether results by whole rows of a depthwise convolution would take longer.

    Parameters
    ----------
    shape : ConvShape
        Depthwise.
    lanes : int
        Of a vector of its elements.

    Returns
    -------
    bool
        Where a row is short, or has many taps: they are not kept in registers there.
    """
    taps, unstrided = math.prod(shape.kernel), shape.strides[1] == 1
    many = taps > _MANY_TAPS if unstrided else taps >= _MANY_TAPS
    short = shape.out_width < (lanes // 2 if unstrided else lanes)
    small = shape.out_height * _Layout(shape, lanes).pitch <= _LARGEST_IMAGE
    return small and (many or short)


def compute(data: te.Tensor, weights: te.Tensor, shape: ConvShape, lanes: int) -> te.Tensor:
    """The convolution as sums over an image's rows one behind the other.

    Parameters
    ----------
    data : te.Tensor
        ``(N, C, H, W)``.
    weights : te.Tensor
        ``(O, 1, KH, KW)``.
    shape : ConvShape
        Strides, padding and dilation.
    lanes : int
        Of a vector.

    Returns
    -------
    te.Tensor
        ``(N, O, OH, OW)``, in the data's dtype.
    """
    layout = _Layout(shape, lanes)
    (down, right), (top, left, *_) = shape.strides, shape.padding
    multiplier, pitch = shape.group_out_channels, layout.pitch
    zero = tirx.const(0, data.dtype)

    def pad(n: Any, c: Any, phase: Any, row: Any, column: Any) -> Any:
        y = row * down + phase // right - top
        x = column * right + phase % right - left
        inside = tirx.all(y >= 0, y < shape.height, x >= 0, x < shape.width)
        return tirx.if_then_else(inside, data[n, c, y, x], zero)

    extents = int64(shape.batch, shape.channels, down * right, layout.rows, pitch)
    padded = te.compute(extents, pad, name="padded")

    rows, columns = (te.reduce_axis((0, extent)) for extent in int64(*shape.kernel))
    along, across = shape.dilation

    def sums(n: Any, o: Any, vector: Any, lane: Any) -> Any:
        channel = o if multiplier == 1 else o // multiplier
        y, x = rows * along, columns * across
        phase = y % down * right + x % right
        at = vector * lanes + lane + y // down * pitch + x // right
        value = padded[n, channel, phase, at // pitch, at % pitch]
        return te.sum(value * weights[o, 0, rows, columns], axis=[rows, columns])

    vectors = int64(shape.batch, shape.out_channels, layout.vectors, lanes)
    raw = te.compute(vectors, sums, name="sums")

    def result(n: Any, o: Any, y: Any, x: Any) -> Any:
        at = y * pitch + x
        return raw[n, o, at // lanes, at % lanes]

    return te.compute(
        int64(shape.batch, shape.out_channels, shape.out_height, shape.out_width),
        result,
        name="depthwise",
        attrs={_ANNOTATION: [multiplier]},
    )


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule what :func:`compute` made, with whatever was fused behind it.

    Parameters
    ----------
    func, machine
        A depthwise convolution, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where :func:`compute` did not make it.
    """
    sch = s_tir.Schedule(func)
    view = find_block(sch, _ANNOTATION)
    if view is None:
        return OTHER_KIND
    (multiplier,) = (int(v) for v in sch.get(view).annotations[_ANNOTATION])
    sch.unannotate(view, _ANNOTATION)
    sums = sch.get_producers(view)[0]
    padded = sch.get_producers(sums)[0]
    last = fold_epilogue(sch, view, {sch.get(block).name_hint for block in (view, sums, padded)})
    rest = other_blocks(sch, (padded, sums, last))
    n, o, *_, w = loops = sch.get_loops(last)
    work = math.prod(loop_extent(sch, loop) for loop in loops)
    if multiplier > 1:
        o, each = sch.split(o, [None, multiplier])
    task = sch.fuse(n, o)
    sch.compute_at(sums, each if multiplier > 1 else task, preserve_unit_loops=True)
    sch.compute_at(padded, task, preserve_unit_loops=True)
    overlapping(sch, last, w, machine.lanes("float32"))
    if 8 * work >= PARALLEL_MIN_WORK and machine.num_threads > 1:
        sch.parallel(task)
    _add_up(sch, sums)  # Afterwards the stage is two blocks, which no other primitive takes.
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]


def _add_up(sch: s_tir.Schedule, sums: Any) -> None:
    """Several vectors of results at once, in registers over all taps."""
    *_, vector, lane, row, column = sch.get_loops(sums)
    count = loop_extent(sch, vector)
    several = next(n for n in (*_AT_ONCE, 2, 1) if count % n == 0)
    outer, inner = sch.split(vector, [None, several])
    sch.reorder(outer, row, column, inner, lane)
    kept = sch.cache_write(sums, 0, "local")
    sch.reverse_compute_at(kept, outer, preserve_unit_loops=True)
    for loops in ([inner, lane], sch.get_loops(kept)[-2:]):
        sch.unroll(loops[0])
        sch.vectorize(loops[1])
    sch.unroll(column)
    init = sch.decompose_reduction(sums, row)
    first, second = sch.get_loops(init)[-2:]
    sch.unroll(first)
    if sch.get(second).kind == tirx.ForKind.SERIAL:
        sch.vectorize(second)
