"""Depthwise convolutions with constant weights: one channel at a time, taps written out.

There is nothing to reuse between channels, so each task pads one channel into a small buffer that
stays in the first-level cache and adds up the kernel's taps for whole output rows.
"""

from __future__ import annotations

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

_ANNOTATION = "collage.depthwise"
_MAX_TAPS = 49
"""Taps are unrolled; larger kernels than 7 x 7 would make too much code."""


def applies(shape: ConvShape) -> bool:
    """Whether a convolution is depthwise, with a kernel small enough to write out."""
    taps = shape.kernel[0] * shape.kernel[1]
    return shape.group_channels == 1 and shape.groups > 1 and taps <= _MAX_TAPS


def compute(data: te.Tensor, weights: te.Tensor, shape: ConvShape) -> te.Tensor:
    """The convolution of (N, C, H, W) with (O, 1, KH, KW), as padding and a sum of taps.

    Parameters
    ----------
    data : te.Tensor
        ``(N, C, H, W)``.
    weights : te.Tensor
        ``(O, 1, KH, KW)``.
    shape : ConvShape
        Strides, padding and dilation.

    Returns
    -------
    te.Tensor
        ``(N, O, OH, OW)`` in the data's dtype.
    """
    top, left, bottom, right = shape.padding
    (stride_h, stride_w), (dilation_h, dilation_w) = shape.strides, shape.dilation
    multiplier = shape.group_out_channels
    zero = tirx.const(0, data.dtype)

    def pad(n: Any, c: Any, h: Any, w: Any) -> Any:
        inside = tirx.all(h >= top, h < shape.height + top, w >= left, w < shape.width + left)
        return tirx.if_then_else(inside, data[n, c, h - top, w - left], zero)

    padded = te.compute(
        int64(
            shape.batch,
            shape.channels,
            shape.height + top + bottom,
            shape.width + left + right,
        ),
        pad,
        name="padded",
    )

    def taps(n: Any, o: Any, h: Any, w: Any) -> Any:
        channel = o if multiplier == 1 else o // multiplier
        total: Any = None
        for kh in range(shape.kernel[0]):
            for kw in range(shape.kernel[1]):
                row, column = h * stride_h + kh * dilation_h, w * stride_w + kw * dilation_w
                term = padded[n, channel, row, column] * weights[o, 0, kh, kw]
                total = term if total is None else total + term
        return total

    return te.compute(
        int64(shape.batch, shape.out_channels, shape.out_height, shape.out_width),
        taps,
        name="depthwise",
        attrs={_ANNOTATION: [stride_w, multiplier]},
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

    n, o, h, w = sch.get_loops(last)
    work = loop_extent(sch, n) * loop_extent(sch, o) * loop_extent(sch, h) * loop_extent(sch, w)
    if multiplier > 1:
        o, _ = sch.split(o, [None, multiplier])
    task = sch.fuse(n, o)
    sch.compute_at(padded, task, preserve_unit_loops=True)
    lanes = machine.lanes("float32")
    if stride_w == 1 and loop_extent(sch, w) % lanes == 0:
        vectorize(sch, w, lanes)
    # Otherwise LLVM vectorizes the plain loop better: of strided rows it loads whole vectors and
    # picks the lanes, and the end of a row is half a vector, not one element after the other.
    if 8 * work >= PARALLEL_MIN_WORK and machine.num_threads > 1:
        sch.parallel(task)
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]
