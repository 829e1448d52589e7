"""Matrix products (optionally batched) as register tiles over packed or plain operands.

``A`` (..., M, K) gives the scalars that are broadcast, ``B`` (..., K, N) the vectors. A constant
``B`` is packed to [N / columns][K][columns] at compile time; a variable one is packed at run time
only where its rows do not divide into whole vectors. ``A`` is packed to [M / rows][K][rows] where
its rows do not fill the tiles, or would fall on the same cache sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from collage.backends.tvm.common.blocks import (
    axes_of,
    fuse_all,
    int64,
    loop_extent,
    other_blocks,
    parallelize_outer,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.legalization import broadcast_index
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

_ANNOTATION = "collage.matmul"
MOST_ROWS = 48
"""A multiple of every tile's number of rows."""
_L1_SET_BYTES = 4096
"""Rows this far apart share a set of the L1 cache, which has fewer ways than a tile has rows."""

_TASKS_PER_THREAD = 4
_RIGHT_BYTES = 256 * 1024
"""Of a right operand that is read anew for each few rows: it stays in the L2 cache."""

Access = Callable[..., Any]


@dataclass(frozen=True)
class MatmulShape:
    """A product of (batch..., M, K) and (batch..., K, N), or of (M..., K) and one constant (K, N).

    Attributes
    ----------
    lead : tuple of int
        The output's shape without its last axis.
    batch_axes : int
        How many of ``lead`` are batch axes; the others together are M.
    constant_b : bool
        B is one constant, packed by :func:`pack_b`.
    """

    lead: tuple[int, ...]
    batch_axes: int
    k: int
    n: int
    constant_b: bool

    @property
    def batch(self) -> int:
        return math.prod(self.lead[: self.batch_axes])

    @property
    def m(self) -> int:
        return math.prod(self.lead[self.batch_axes :])


def choose_tile(shape: MatmulShape, machine: Machine) -> Tile:
    """The tile with the least work, counting what is computed past the edges and idle threads.

    Parameters
    ----------
    shape : MatmulShape
        Of the product.
    machine : Machine
        Its registers and threads count.

    Returns
    -------
    Tile
        Of exactly the product's rows where these are fewer than any other tile has.
    """
    options = tiles(machine, "float32")
    if shape.m < min(tile.rows for tile in options):
        options = tiles_of_few_rows(machine, "float32", shape.m)

    def cost(tile: Tile) -> float:
        blocks_m = math.ceil(shape.m / tile.rows)
        blocks_n = math.ceil(shape.n / tile.columns)
        tasks = shape.batch * blocks_m * blocks_n
        idle = math.ceil(tasks / machine.num_threads) * machine.num_threads / tasks
        steps = shape.k * tile.cost + 4
        return blocks_m * tile.rows * blocks_n * tile.columns * steps * idle

    return min(options, key=cost)


def pack_b(b: np.ndarray, tile: Tile) -> np.ndarray:
    """(K, N) to [block][K][columns], the last block filled up with zeros.

    Parameters
    ----------
    b : ndarray
        ``(K, N)``.
    tile : Tile
        Its columns are a block's.

    Returns
    -------
    np.ndarray
        ``(blocks, K, columns)`` in the matrix's dtype, contiguous.
    """
    k, n = b.shape
    blocks = math.ceil(n / tile.columns)
    padded = np.zeros((k, blocks * tile.columns), b.dtype)
    padded[:, :n] = b
    return np.ascontiguousarray(padded.reshape(k, blocks, tile.columns).transpose(1, 0, 2))


def compute(a: te.Tensor, b: te.Tensor, shape: MatmulShape, tile: Tile) -> te.Tensor:
    """The product as tensor expressions: panels where needed, product, view.

    Parameters
    ----------
    a : te.Tensor
        (..., M, K) float32.
    b : te.Tensor
        [block][K][columns] where ``shape.constant_b``, else (..., K, N).
    shape : MatmulShape
        Of the product.
    tile : Tile
        As :func:`choose_tile` chose it; a packed ``b`` has its columns.

    Returns
    -------
    te.Tensor
        ``(*shape.lead, N)`` float32.
    """
    columns = tile.columns
    blocks_m, blocks_n = math.ceil(shape.m / tile.rows), math.ceil(shape.n / columns)
    left = _left_access(a, shape, tile, blocks_m)
    right = _right_access(b, shape, tile, blocks_n)
    k = te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", shape.k)), "k")
    raw = te.compute(
        int64(shape.batch, blocks_n, blocks_m, tile.rows, columns),
        lambda batch, block_n, block_m, row, column: te.sum(
            left(batch, block_m, k, row) * right(batch, block_n, k, column), axis=k
        ),
        name="matmul",
        attrs={_ANNOTATION: [*astuple(tile), blocks_m, blocks_n, shape.batch_axes]},
    )

    def view(*index: Any) -> Any:
        batch = _flatten(index[: shape.batch_axes], shape.lead[: shape.batch_axes])
        m = _flatten(index[shape.batch_axes : -1], shape.lead[shape.batch_axes :])
        n = index[-1]
        return raw[batch, n // columns, m // tile.rows, m % tile.rows, n % columns]

    return te.compute(int64(*shape.lead, shape.n), view, name="matmul_view")


def _left_access(a: te.Tensor, shape: MatmulShape, tile: Tile, blocks: int) -> Access:
    def plain(batch: Any, block: Any, k: Any, row: Any) -> Any:
        m = _unflatten(block * tile.rows + row, shape.lead[shape.batch_axes :])
        return a[(*(_broadcast(batch, shape, a) if shape.batch_axes else ()), *m, k)]

    def held(batch: Any, block: Any, k: Any, row: Any) -> Any:
        # What is computed of the last row again nobody reads; copied to panels, all rows would be.
        m = tirx.min(block * tile.rows + row, tirx.IntImm("int64", shape.m - 1))
        place = _unflatten(m, shape.lead[shape.batch_axes :])
        return a[(*(_broadcast(batch, shape, a) if shape.batch_axes else ()), *place, k)]

    same_sets = tile.rows > 8 and (4 * shape.k) % _L1_SET_BYTES == 0
    if not same_sets:
        return held if shape.m % tile.rows else plain
    return _panels("panel_a", plain, a.dtype, (shape, blocks, tile.rows), shape.m)


def _right_access(b: te.Tensor, shape: MatmulShape, tile: Tile, blocks: int) -> Access:
    if shape.constant_b:
        return lambda _, block, k, column: b[block, k, column]

    def plain(batch: Any, block: Any, k: Any, column: Any) -> Any:
        index = _broadcast(batch, shape, b) if shape.batch_axes else ()
        return b[(*index, k, block * tile.columns + column)]

    if shape.n % tile.columns == 0:
        return plain
    return _panels("panel_b", plain, b.dtype, (shape, blocks, tile.columns), shape.n)


def _panels(
    name: str, plain: Access, dtype: str, cut: tuple[MatmulShape, int, int], extent: int
) -> Access:
    """An operand as contiguous panels of so many rows or columns, with zeros beyond its extent."""
    shape, blocks, width = cut
    packed = te.compute(
        int64(shape.batch, blocks, shape.k, width),
        lambda batch, block, k, lane: tirx.if_then_else(
            block * width + lane < extent, plain(batch, block, k, lane), tirx.const(0, dtype)
        ),
        name=name,
    )
    return lambda *index: packed[index]


def _broadcast(batch: Any, shape: MatmulShape, operand: te.Tensor) -> list[Any]:
    """An operand's batch indices: numpy's broadcasting, axes aligned at their ends."""
    return broadcast_index(_unflatten(batch, shape.lead[: shape.batch_axes]), operand.shape[:-2])


def _flatten(index: Sequence[Any], dims: Sequence[int]) -> Any:
    flat: Any = tirx.IntImm("int64", 0)
    for i, dim in zip(index, dims, strict=True):
        flat = flat * dim + i
    return flat


def _unflatten(flat: Any, dims: Sequence[int]) -> list[Any]:
    index: list[Any] = []
    for dim in reversed(dims[1:]):
        index.append(flat % dim)
        flat = flat // dim
    return [*([flat] if dims else []), *reversed(index)]


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule what :func:`compute` made, with whatever was fused behind it.

    Parameters
    ----------
    func, machine
        A packed matrix product, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Scheduled, or :data:`OTHER_KIND` where :func:`compute` did not make it.
    """
    sch = s_tir.Schedule(func)
    product = find_block(sch, _ANNOTATION)
    if product is None:
        return OTHER_KIND
    figures = [int(v) for v in sch.get(product).annotations[_ANNOTATION]]
    tile, (blocks_m, blocks_n, batch_axes) = Tile(*figures[:3]), figures[3:]
    sch.unannotate(product, _ANNOTATION)
    piece = cut_sum(sch, product)
    products = [product] if piece is None else [piece, product]
    panels = list(sch.get_producers(products[0]))
    view = sch.get_consumers(product)[0]
    last = fold_epilogue(sch, view, {sch.get(b).name_hint for b in (*products, view, *panels)})
    rest = other_blocks(sch, (*products, last, *panels))

    *lead, n = sch.get_loops(last)
    batch, rows = lead[:batch_axes], fuse_all(sch, lead[batch_axes:])
    block_m, row = sch.split(rows, [blocks_m, tile.rows])
    columns = loop_extent(sch, n)
    tasks = blocks_m * math.prod(loop_extent(sch, loop) for loop in batch)
    k = sum(axis.extent for axis in axes_of(sch, products[0]) or [] if axis.reduce)
    whole_rows = (
        columns % tile.columns > 0
        and tasks >= _TASKS_PER_THREAD * machine.num_threads
        and 4 * k * columns <= _RIGHT_BYTES
    )
    if whole_rows:
        block_n, lane = sch.split(n, [None, tile.lanes])
        sch.reorder(*batch, block_m, row, block_n, lane)
        task = fuse_all(sch, [*batch, block_m])
    else:
        block_n, vector, lane = sch.split(n, [blocks_n, tile.vectors, tile.lanes])
        sch.reorder(*batch, block_n, block_m, row, vector, lane)
        task = sch.fuse(*batch, block_n, block_m)
    sch.compute_at(product, task, preserve_unit_loops=True)
    sch.vectorize(lane)
    sch.annotate(block_n if whole_rows else vector, "pragma_loop_partition_hint", 1)
    sch.parallel(task)
    for panel in panels:
        parallelize_outer(sch, panel, machine)
    schedule_tile(sch, product, piece, tile)
    for stage in rest:
        generic.schedule_stage(sch, stage, machine)
    return sch.mod["main"]
