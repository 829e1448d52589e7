"""How a convolution is cut into register tiles and input panels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules._tile import Tile, tiles, tiles_of_few_rows

_PANEL_BYTES = 768 * 1024
"""Wanted size of an input panel: with a block of weights it has to stay in a core's L2 cache."""


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
