"""Convolutions, NCHW, as a product of packed weights and input panels.

The input is copied into panels: for a group of output rows, every input row that they read, padded
and, for strides, taken apart into phases, so that neighbouring outputs read neighbouring elements.
A position ``q`` of a panel then stands for output (q // pitch, q % pitch); columns past the row's
end are computed too and dropped. That makes the whole convolution a matrix product whose
vectorized axis is ``q`` (implicit im2col), with weights packed to [block][channel][kh][kw][rows].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    fuse_all,
    int64,
    loop_extent,
    other_blocks,
    parallelize,
    parallelize_outer,
    vectorize,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import generic
from collage.backends.tvm.cpu.schedules._epilogue import find_block, fold_epilogue
from collage.backends.tvm.cpu.schedules._tile import (
    Tile,
    cut_sum,
    schedule_tile,
)
from collage.backends.tvm.cpu.schedules.conv_plan import ConvPlan, ConvShape

ANNOTATION = "collage.conv2d"
_TILED_PANEL = "panel_of_tiles"
_PACKED = "packed_weights"
SLICES = "slices"
"""A stage that gives volumes as pictures: the panels read it in place."""
VOLUME = "volume"
"""A stage that gives the pictures' convolutions as volumes again."""
_MOST_UNROLLED = 128
"""Vectors of multiply-adds up to which all points of a kernel are unrolled."""
_SHORT_ROW = 3
"""Points of a kernel's row that are unrolled whatever else is."""


def pack_weights(weights: np.ndarray, shape: ConvShape, tile: Tile) -> np.ndarray:
    """OIHW to [block][I][H][W][rows], each group's last block filled up with zeros.

    Parameters
    ----------
    weights : ndarray
        ``(O, I, H, W)``.
    shape : ConvShape
        Of the convolution; it has the groups.
    tile : Tile
        Its rows are a block's.

    Returns
    -------
    np.ndarray
        ``(blocks, I, H, W, rows)`` in the weights' dtype, contiguous.
    """
    per_group, rows = shape.group_out_channels, tile.rows
    blocks = math.ceil(per_group / rows)
    padded = np.zeros((shape.groups, blocks * rows, *weights.shape[1:]), weights.dtype)
    padded[:, :per_group] = weights.reshape(shape.groups, per_group, *weights.shape[1:])
    blocked = padded.reshape(shape.groups * blocks, rows, *weights.shape[1:])
    return np.ascontiguousarray(blocked.transpose(0, 2, 3, 4, 1))


def packed_weights(weights: te.Tensor, shape: ConvShape, tile: Tile) -> te.Tensor:
    """What :func:`pack_weights` makes, of weights that are known when the kernel runs.

    Parameters
    ----------
    weights, shape, tile
        As :func:`pack_weights` takes them.

    Returns
    -------
    te.Tensor
        A stage that :func:`schedule` leaves in a loop nest of its own.
    """
    per_group, rows = shape.group_out_channels, tile.rows
    blocks = math.ceil(per_group / rows)

    def packed(block: Any, channel: Any, h: Any, w: Any, row: Any) -> Any:
        at = block % blocks * rows + row
        tap = (h, w) if len(weights.shape) == 4 else (w,)
        value = weights[(block // blocks * per_group + at, channel, *tap)]
        return tirx.if_then_else(at < per_group, value, tirx.const(0, weights.dtype))

    return te.compute(
        int64(shape.groups * blocks, shape.group_channels, *shape.kernel, rows),
        packed,
        name=_PACKED,
    )


def compute(data: te.Tensor, packed: te.Tensor, shape: ConvShape, cut: ConvPlan) -> te.Tensor:
    """The convolution as tensor expressions: panel, product, view.

    Parameters
    ----------
    data : te.Tensor
        (N, C, H, W) float32, or (N, C, H * W).
    packed : te.Tensor
        What :func:`pack_weights` or :func:`packed_weights` makes.
    shape : ConvShape
        Of the convolution.
    cut : ConvPlan
        As :func:`plan` makes it; its tile is that of the packed weights.

    Returns
    -------
    te.Tensor
        (N, O, OH, OW) float32, or (N, O, OH * OW).
    """
    (stride_h, stride_w), (dilation_h, dilation_w) = shape.strides, shape.dilation
    tile, pitch, rows = cut.tile, cut.pitch, cut.rows_per_panel
    steps = cut.positions // tile.columns
    panels = _tiled_panels(data, shape, cut) if shape.is_pointwise else _panels(data, shape, cut)
    ic, kh, kw = (
        te.reduce_axis((tirx.IntImm("int64", 0), extent), name)
        for name, extent in zip(
            ("ic", "kh", "kw"), int64(shape.group_channels, *shape.kernel), strict=True
        )
    )

    def product(n: Any, p: Any, block: Any, row: Any, t: Any, column: Any) -> Any:
        group = block // cut.blocks_per_group if shape.groups > 1 else 0
        channel = group * shape.group_channels + ic
        if shape.is_pointwise:
            value = panels[n, p, t, channel, column]
            return te.sum(value * packed[block, ic, kh, kw, row], axis=[ic, kh, kw])
        step_h, step_w = kh * dilation_h, kw * dilation_w
        phase_h = step_h % stride_h if cut.phases[0] > 1 else 0
        phase_w = step_w % stride_w if cut.phases[1] > 1 else 0
        at = t * tile.columns + column + (step_h // stride_h) * pitch + step_w // stride_w
        value = panels[n, p, channel, phase_h, phase_w, at]
        return te.sum(value * packed[block, ic, kh, kw, row], axis=[ic, kh, kw])

    blocks = cut.blocks_per_group * shape.groups
    raw = te.compute(
        int64(shape.batch, cut.panels, blocks, tile.rows, steps, tile.columns),
        product,
        name="conv",
        attrs={ANNOTATION: [*astuple(tile), rows, cut.panels, pitch, blocks, shape.out_width]},
    )
    is_flat = len(data.shape) == 3
    height, width = shape.out_height, shape.out_width

    def view(n: Any, o: Any, *at: Any) -> Any:
        h, w = (at[0] // width, at[0] % width) if is_flat else at
        block, row = _block_of(o, cut)
        q = (h % rows) * pitch + w
        return raw[n, h // rows, block, row, q // tile.columns, q % tile.columns]

    extents = (height * width,) if is_flat else (height, width)
    return te.compute(int64(shape.batch, shape.out_channels, *extents), view, name="conv_view")


def _panels(data: te.Tensor, shape: ConvShape, cut: ConvPlan) -> te.Tensor:
    """Rows with their padding, one behind the other, of each phase."""
    (stride_h, stride_w), (top, left) = shape.strides, shape.padding[:2]
    pitch, rows = cut.pitch, cut.rows_per_panel

    def panel(n: Any, p: Any, c: Any, phase_h: Any, phase_w: Any, r: Any) -> Any:
        h = (p * rows + r // pitch) * stride_h + phase_h - top
        w = (r % pitch) * stride_w + phase_w - left
        return _padded(data, shape, (n, c, h, w))

    return te.compute(
        int64(shape.batch, cut.panels, shape.channels, *cut.phases, cut.panel_rows * pitch),
        panel,
        name="panel",
    )


def _tiled_panels(data: te.Tensor, shape: ConvShape, cut: ConvPlan) -> te.Tensor:
    """Tile by tile: a kernel of one point reads no neighbours, and a tile's columns of all channels
    are one piece of memory, which the processor fetches ahead, instead of pieces of two lines."""
    (stride_h, stride_w), (top, left) = shape.strides, shape.padding[:2]
    columns, pitch, rows = cut.tile.columns, cut.pitch, cut.rows_per_panel

    def panel(n: Any, p: Any, t: Any, c: Any, column: Any) -> Any:
        q = t * columns + column
        if shape.is_plain:
            at = p * (rows * pitch) + q
            inside = at < shape.height * shape.width
            value = _element(data, shape, (n, c, at // shape.width, at % shape.width))
            return tirx.if_then_else(inside, value, tirx.const(0, data.dtype))
        h, w = (p * rows + q // pitch) * stride_h - top, (q % pitch) * stride_w - left
        return _padded(data, shape, (n, c, h, w))

    steps = cut.positions // columns
    return te.compute(
        int64(shape.batch, cut.panels, steps, shape.channels, columns), panel, name=_TILED_PANEL
    )


def _padded(data: te.Tensor, shape: ConvShape, at: tuple[Any, Any, Any, Any]) -> Any:
    _, _, h, w = at
    inside = tirx.all(h >= 0, h < shape.height, w >= 0, w < shape.width)
    return tirx.if_then_else(inside, _element(data, shape, at), tirx.const(0, data.dtype))


def _element(data: te.Tensor, shape: ConvShape, at: tuple[Any, Any, Any, Any]) -> Any:
    n, c, h, w = at
    return data[n, c, h * shape.width + w] if len(data.shape) == 3 else data[at]


def _block_of(o: Any, cut: ConvPlan) -> tuple[Any, Any]:
    """Block and row that hold an output channel (blocks of a group are whole when groups > 1)."""
    return o // cut.tile.rows, o % cut.tile.rows


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule what :func:`compute` made, with whatever was fused behind it.

    Parameters
    ----------
    func, machine
        A packed convolution, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where :func:`compute` did not make it.
    """
    sch = s_tir.Schedule(func)
    product = find_block(sch, ANNOTATION)
    if product is None:
        return OTHER_KIND
    figures: Sequence[int] = [int(v) for v in sch.get(product).annotations[ANNOTATION]]
    tile, (rows, panels, pitch, blocks, row_width) = Tile(*figures[:3]), figures[3:]
    sch.unannotate(product, ANNOTATION)
    piece = cut_sum(sch, product)
    products = [product] if piece is None else [piece, product]
    operands = list(sch.get_producers(products[0]))
    (panel,) = (block for block in operands if sch.get(block).name_hint != _PACKED)
    view = _of_volumes(sch, panel, sch.get_consumers(product)[0])
    names = {sch.get(block).name_hint for block in (*products, *operands, view)}
    last = fold_epilogue(sch, view, names)
    rest = other_blocks(sch, (*products, panel, last))

    n, channel, *space = sch.get_loops(last)
    if len(space) == 3:
        depth, *space = space
        sch.reorder(n, depth, channel)
        n = sch.fuse(n, depth)
    height, width = space if len(space) == 2 else sch.split(space[0], [None, row_width])
    block, _row = sch.split(channel, [blocks, tile.rows])
    group, line = sch.split(height, [panels, rows])
    sch.reorder(n, group, block, _row, line, width)
    task = sch.fuse(n, group, block)
    sch.compute_at(product, task, preserve_unit_loops=True)
    # Along the output rows, or across them where they touch.
    touching = pitch == loop_extent(sch, width)
    vectorize(sch, fuse_all(sch, [line, width]) if touching else width, tile.lanes)
    if sch.get(panel).name_hint == _TILED_PANEL:
        _schedule_tiled_panel(sch, panel, tile, machine)
    else:
        _schedule_panel(sch, panel, pitch, machine)
    sch.parallel(task)

    def unrolled(reduction: Sequence[Any]) -> list[Any]:
        points = loop_extent(sch, reduction[-2]) * loop_extent(sch, reduction[-1])
        if points * tile.rows * tile.vectors <= _MOST_UNROLLED:
            return list(reduction[-2:])
        return [reduction[-1]] if loop_extent(sch, reduction[-1]) <= _SHORT_ROW else []

    schedule_tile(sch, product, piece, tile, unrolled)
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]


def _of_volumes(sch: s_tir.Schedule, panel: Any, view: Any) -> Any:
    """What gives the result in the operator's own layout, if its pictures are a volume's slices."""
    for block in sch.get_producers(panel):
        if sch.get(block).name_hint == SLICES:
            sch.compute_inline(block)
            (volume,) = sch.get_consumers(view)
            sch.compute_inline(view)
            return volume
    return view


def _schedule_panel(sch: s_tir.Schedule, panel: Any, pitch: int, machine: Machine) -> None:
    sch.split(sch.get_loops(panel)[-1], [None, pitch])
    parallelize_outer(sch, panel, machine)


def _schedule_tiled_panel(sch: s_tir.Schedule, panel: Any, tile: Tile, machine: Machine) -> None:
    """A channel after the other, as they lie in memory; only the last tile asks where rows end."""
    n, p, t, channel, column = sch.get_loops(panel)
    work = math.prod(loop_extent(sch, loop) for loop in (n, p, t, channel, column))
    sch.reorder(n, p, channel, t, column)
    sch.annotate(t, "pragma_loop_partition_hint", 1)
    parallelize(sch, sch.fuse(n, p, channel), machine, work)
