"""Convolutions with constant weights, NCHW, as a product of packed weights and input panels.

The input is copied into panels: for a group of output rows, every input row that they read, padded
and, for strides, taken apart into phases, so that neighbouring outputs read neighbouring elements.
A position ``q`` of a panel then stands for output (q // pitch, q % pitch); columns past the row's
end are computed too and dropped. That makes the whole convolution a matrix product whose
vectorized axis is ``q`` (implicit im2col), with weights packed to [block][channel][kh][kw][rows].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
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
    tiles,
    tiles_of_few_rows,
)

ANNOTATION = "collage.conv2d"
_TILED_PANEL = "panel_of_tiles"
_PANEL_BYTES = 768 * 1024
"""Wanted size of an input panel: with a block of weights it has to stay in a core's L2 cache."""
_MOST_UNROLLED = 128
"""Vectors of multiply-adds up to which all points of a kernel are unrolled."""
_SHORT_ROW = 3
"""Points of a kernel's row that are unrolled whatever else is."""


@dataclass(frozen=True)
class ConvShape:
    """A 2-D convolution, NCHW and OIHW; padding is (top, left, bottom, right)."""

    batch: int
    channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def out_height(self) -> int:
        extent = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.height + self.padding[0] + self.padding[2] - extent) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        extent = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.width + self.padding[1] + self.padding[3] - extent) // self.strides[1] + 1

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1)

    @property
    def is_plain(self) -> bool:
        """Whether outputs are where inputs are."""
        return self.is_pointwise and self.strides == (1, 1) and not any(self.padding)

    @property
    def group_channels(self) -> int:
        return self.channels // self.groups

    @property
    def group_out_channels(self) -> int:
        return self.out_channels // self.groups


@dataclass(frozen=True)
class ConvPlan:
    """How one convolution is cut.

    Attributes
    ----------
    tile : Tile
        Rows are output channels, columns positions of the panel.
    rows_per_panel : int
        Output rows that one panel serves.
    panels : int
        Panels per image.
    pitch : int
        Elements from one panel row to the next.
    positions : int
        Positions computed per panel, a multiple of the tile's columns.
    panel_rows : int
        Rows of a panel.
    phases : (int, int)
        Interleaved sub-images per direction, for strides.
    blocks_per_group : int
        Blocks of ``tile.rows`` output channels per convolution group.
    """

    tile: Tile
    rows_per_panel: int
    panels: int
    pitch: int
    positions: int
    panel_rows: int
    phases: tuple[int, int]
    blocks_per_group: int


def plan(shape: ConvShape, machine: Machine) -> ConvPlan:
    """Choose the tile and the panel height with the least work and the best balance.

    Parameters
    ----------
    shape : ConvShape
        Of the convolution.
    machine : Machine
        Its vector registers and threads count.

    Returns
    -------
    ConvPlan
        Its blocks of output channels lie within one group each.
    """
    options = tiles(machine, "float32")
    if shape.group_out_channels < min(tile.rows for tile in options):
        options = tiles_of_few_rows(machine, "float32", shape.group_out_channels)
    elif shape.groups > 1:
        # A block of output channels must not straddle two groups.
        dividing = [t for t in options if shape.group_out_channels % t.rows == 0]
        options = dividing or tiles_of_few_rows(machine, "float32", 1)
    panel_counts = [n for n in range(1, shape.out_height + 1) if n <= 4 or n % 4 == 0]
    plans = [_cut(shape, tile, count) for tile in options for count in panel_counts]
    return min(plans, key=lambda candidate: _cost(shape, candidate, machine))


def _cut(shape: ConvShape, tile: Tile, panels: int) -> ConvPlan:
    steps = [
        ((k - 1) * d) // s
        for k, d, s in zip(shape.kernel, shape.dilation, shape.strides, strict=True)
    ]
    phases = tuple(
        1 if all(i * d % s == 0 for i in range(k)) else s
        for k, d, s in zip(shape.kernel, shape.dilation, shape.strides, strict=True)
    )
    rows = math.ceil(shape.out_height / panels)
    pitch = shape.out_width + steps[1]
    used = (rows - 1) * pitch + shape.out_width
    positions = math.ceil(used / tile.columns) * tile.columns
    panel_rows = math.ceil((positions + steps[0] * pitch + steps[1]) / pitch)
    return ConvPlan(
        tile=tile,
        rows_per_panel=rows,
        panels=math.ceil(shape.out_height / rows),
        pitch=pitch,
        positions=positions,
        panel_rows=panel_rows,
        phases=(phases[0], phases[1]),
        blocks_per_group=math.ceil(shape.group_out_channels / tile.rows),
    )


def _cost(shape: ConvShape, candidate: ConvPlan, machine: Machine) -> float:
    """Relative time: multiply-adds that are really done, packing, and idle threads."""
    blocks = candidate.blocks_per_group * shape.groups
    tasks = shape.batch * candidate.panels * blocks
    idle = math.ceil(tasks / machine.num_threads) * machine.num_threads / tasks
    depth = shape.group_channels * shape.kernel[0] * shape.kernel[1]
    # Writing and reading the raw result costs about two steps per vector of it.
    done = tasks * candidate.positions * candidate.tile.rows * (depth * candidate.tile.cost + 2)
    panel = candidate.panel_rows * candidate.pitch * candidate.phases[0] * candidate.phases[1]
    packed = shape.batch * candidate.panels * shape.channels * panel
    panel_bytes = 4 * shape.group_channels * panel
    spill = 1.0 if panel_bytes <= _PANEL_BYTES or candidate.panels == shape.out_height else 1.1
    return (done * idle + 8 * packed) * spill


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


def compute(data: te.Tensor, packed: te.Tensor, shape: ConvShape, cut: ConvPlan) -> te.Tensor:
    """The convolution as tensor expressions: panel, product, view.

    Parameters
    ----------
    data : te.Tensor
        (N, C, H, W) float32.
    packed : te.Tensor
        What :func:`pack_weights` makes.
    shape : ConvShape
        Of the convolution.
    cut : ConvPlan
        As :func:`plan` makes it; its tile is that of the packed weights.

    Returns
    -------
    te.Tensor
        (N, O, OH, OW) float32.
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
        attrs={ANNOTATION: [*astuple(tile), rows, cut.panels, pitch, blocks]},
    )

    def view(n: Any, o: Any, h: Any, w: Any) -> Any:
        block, row = _block_of(o, cut)
        q = (h % rows) * pitch + w
        return raw[n, h // rows, block, row, q // tile.columns, q % tile.columns]

    return te.compute(
        int64(shape.batch, shape.out_channels, shape.out_height, shape.out_width),
        view,
        name="conv_view",
    )


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
            value = data[n, c, at // shape.width, at % shape.width]
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
    return tirx.if_then_else(inside, data[at], tirx.const(0, data.dtype))


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
    tile, (rows, panels, pitch, blocks) = Tile(*figures[:3]), figures[3:]
    sch.unannotate(product, ANNOTATION)
    piece = cut_sum(sch, product)
    products = [product] if piece is None else [piece, product]
    panel = sch.get_producers(products[0])[0]
    view = sch.get_consumers(product)[0]
    names = {sch.get(block).name_hint for block in (*products, panel, view)}
    last = fold_epilogue(sch, view, names)
    rest = other_blocks(sch, (*products, panel, last))

    n, channel, height, width = sch.get_loops(last)
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
