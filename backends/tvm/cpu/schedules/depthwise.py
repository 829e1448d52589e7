"""Depthwise convolutions with constant weights: one channel at a time, taps written out.

There is nothing to reuse between channels, so each task pads one channel into a small buffer that
stays in the first-level cache and adds up the kernel's taps for whole output rows.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    PARALLEL_MIN_WORK,
    int64,
    loop_extent,
    other_blocks,
    vectorize,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import generic
from collage.backends.tvm.cpu.schedules._epilogue import find_block, fold_epilogue
from collage.backends.tvm.cpu.schedules.conv_plan import ConvShape
from collage.backends.tvm.cpu.schedules.overlapping import overlapping

_ANNOTATION = "collage.depthwise"
_MAX_TAPS = 49
"""Taps are written out; larger kernels of images than 7 x 7 take the packed kernel half as long,
for it loads less of each row,"""

_MAX_TAPS_IN_A_ROW = 128
"""and of longer ones along one axis that kernel has nothing to load less of."""


def applies(shape: ConvShape) -> bool:
    """Whether a convolution is depthwise, with a kernel small enough to write out."""
    rows, columns = shape.kernel
    few = rows * columns <= (_MAX_TAPS_IN_A_ROW if rows == 1 else _MAX_TAPS)
    return shape.group_channels == 1 and shape.groups > 1 and few


def compute(data: te.Tensor, weights: te.Tensor, shape: ConvShape) -> te.Tensor:
    """The convolution of images or signals, as padding and a sum of taps.

    Parameters
    ----------
    data : te.Tensor
        ``(N, C, H, W)``, or ``(N, C, W)``.
    weights : te.Tensor
        ``(O, 1, KH, KW)``, or ``(O, 1, KW)``.
    shape : ConvShape
        Strides, padding and dilation; of a signal, as of an image of one row.

    Returns
    -------
    te.Tensor
        ``(N, O, OH, OW)``, or ``(N, O, OW)``, in the data's dtype.
    """
    top, left, bottom, right = shape.padding
    # Of a signal the last axis alone.
    first_axis = 4 - len(data.shape)

    def own_axes(*of_image: int) -> list[int]:
        return list(of_image)[first_axis:]

    extents = own_axes(shape.height, shape.width)
    before, behind = own_axes(top, left), own_axes(bottom, right)
    strides, dilation = own_axes(*shape.strides), own_axes(*shape.dilation)
    multiplier = shape.group_out_channels
    zero = tirx.const(0, data.dtype)

    def pad(n: Any, c: Any, *at: Any) -> Any:
        inside = [
            condition
            for place, first, extent in zip(at, before, extents, strict=True)
            for condition in (place >= first, place < extent + first)
        ]
        own = [place - first for place, first in zip(at, before, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), data[(n, c, *own)], zero)

    widths = [sum(three) for three in zip(before, extents, behind, strict=True)]
    padded = te.compute(int64(shape.batch, shape.channels, *widths), pad, name="padded")

    def taps(n: Any, o: Any, *at: Any) -> Any:
        channel = o if multiplier == 1 else o // multiplier
        total: Any = None
        for tap in itertools.product(*map(range, own_axes(*shape.kernel))):
            places = [
                place * stride + number * step
                for place, stride, number, step in zip(at, strides, tap, dilation, strict=True)
            ]
            term = padded[(n, channel, *places)] * weights[(o, 0, *tap)]
            total = term if total is None else total + term
        return total

    results = own_axes(shape.out_height, shape.out_width)
    return te.compute(
        int64(shape.batch, shape.out_channels, *results),
        taps,
        name="depthwise",
        attrs={_ANNOTATION: [shape.strides[1], multiplier]},
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
    taps = find_block(sch, _ANNOTATION)
    if taps is None:
        return OTHER_KIND
    stride_w, multiplier = (int(v) for v in sch.get(taps).annotations[_ANNOTATION])
    sch.unannotate(taps, _ANNOTATION)
    padded = sch.get_producers(taps)[0]
    last = fold_epilogue(sch, taps, {sch.get(block).name_hint for block in (taps, padded)})
    rest = other_blocks(sch, (padded, last))

    n, o, *_, w = loops = sch.get_loops(last)
    work = math.prod(loop_extent(sch, loop) for loop in loops)
    if multiplier > 1:
        o, _ = sch.split(o, [None, multiplier])
    task = sch.fuse(n, o)
    sch.compute_at(padded, task, preserve_unit_loops=True)
    lanes = machine.lanes("float32")
    if stride_w == 1 and loop_extent(sch, w) % lanes == 0:
        vectorize(sch, w, lanes)
    elif stride_w == 1:
        overlapping(sch, last, w, lanes)
    # Otherwise LLVM vectorizes the plain loop better: of strided rows it loads whole vectors and
    # picks the lanes, and the end of a row is half a vector, not one element after the other.
    if 8 * work >= PARALLEL_MIN_WORK and machine.num_threads > 1:
        sch.parallel(task)
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]
