"""Kernels that read along one axis and write along another: tiles, transposed in registers.

Changes of layout, alone or with elementwise work around them. Element by element, such an operand
costs a load and a store for each, and where its rows lie a power of two apart each comes from
another line that the cache has forgotten when the next element of it is wanted. A tile is as many
rows as a vector has lanes: whole vectors are read, exchanged in as many steps as the number has
bits, and written whole. The last tile of a side begins where it still ends inside, and computes
some elements again.

Where nothing lies across but axes were divided, as reshapes do, the runs between are copied whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from collage.backends.tvm.common.blocks import (
    PARALLEL_MIN_WORK,
    Axis,
    axes_of,
    root_blocks,
    size_of,
)
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.common.inlining import has_branches, inline_stages, is_elementwise
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.common.numbers.rounding import with_buffers
from collage.backends.tvm.cpu.schedules._lanes import transposed
from collage.backends.tvm.cpu.schedules._nest import Access, Nest, flat_view, nest_of, put

_LEAST = 4
"""Places along either side below which LLVM's shuffles for the plain loop are as good."""

_LARGEST = 16
_SHORTEST_RUN = 8
"""Of elements: below, finding each run's begin takes longer than the run."""

_TYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8")

Views = dict[Any, Any]
"""Tensors as rows, by their buffers."""


@dataclass(frozen=True)
class _Plan:
    """What is tiled.

    Attributes
    ----------
    nest : Nest
        The only stage.
    across : int
        The axis that operands which lie across are contiguous along; the last where there are none.
    side : int
        Rows, and columns, of a tile.
    crossing : sequence of Access
        What is transposed.
    """

    nest: Nest
    across: int
    side: int
    crossing: Sequence[Access]


def schedule(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """Schedule a kernel without reductions, an operand of which lies across its result.

    Parameters
    ----------
    func, machine
        A kernel such as a permutation of axes, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        By tiles or by runs, or :data:`OTHER_KIND`.
    """
    sch = s_tir.Schedule(func)
    inline_stages(sch)
    blocks = root_blocks(sch)
    if len(blocks) != 1:
        return OTHER_KIND
    axes, stmt = axes_of(sch, blocks[0]), sch.get(blocks[0])
    if axes is None or any(axis.reduce for axis in axes) or not is_elementwise(stmt):
        return OTHER_KIND
    nest = nest_of(stmt, axes)
    if nest is None or len(nest.axes) < 2 or has_branches(stmt):
        return OTHER_KIND
    crossing = [load for load in nest.loads if load.strides[-1] not in (0, 1)]
    last = nest.axes[-1].extent
    uneven = any(load.strides[-1] is None for load in crossing) and last <= _LARGEST
    if nest.cut and (last < _LEAST or uneven or (not crossing and last >= _SHORTEST_RUN)):
        return _runs(func, nest, machine)
    plan = _plan(nest, crossing, machine)
    return plan if isinstance(plan, Refusal) else _tiles(func, plan, machine)


def _plan(nest: Nest, crossing: Sequence[Access], machine: Machine) -> _Plan | Refusal:
    across = set[int]()
    for load in crossing:
        contiguous = [number for number, stride in enumerate(load.strides) if stride == 1]
        if load.strides[-1] is None or len(contiguous) != 1:
            return OTHER_KIND
        across.add(contiguous[0])
    types = [str(load.buffer.dtype) for load in crossing]
    if len(across) != 1 or any(kind not in _TYPES for kind in types):
        return OTHER_KIND
    rows = across.pop()
    most = min(_LARGEST, *(machine.lanes(kind) for kind in types))
    side = _side(nest.axes[rows].extent, nest.axes[-1].extent, most)
    return _Plan(nest, rows, side, crossing) if side else OTHER_KIND


def _side(rows: int, columns: int, most: int) -> int:
    """Of the tiles that take the fewest instructions together, 0 where none fits."""
    fitting = [side for side in _powers(most) if side <= min(rows, columns)]

    def work(side: int) -> int:
        return -(-rows // side) * -(-columns // side) * side * (2 + side.bit_length() - 1)

    return min(fitting, key=work, default=0)


def _powers(most: int) -> list[int]:
    """Of two, from the largest on."""
    return [1 << bit for bit in range(most.bit_length() - 1, -1, -1) if 1 << bit >= _LEAST]


def _tiles(func: tirx.PrimFunc, plan: _Plan, machine: Machine) -> tirx.PrimFunc:
    """Tiles along the longer side one after the other, and whatever else there is shared out."""
    axes, side = plan.nest.axes, plan.side
    pair = axes[plan.across], axes[-1]
    inner, other = pair if pair[0].extent >= pair[1].extent else pair[::-1]
    outer = [axis for axis in axes if axis not in pair]
    begins = -(-other.extent // side)

    def begin(tile: Any, axis: Axis) -> Any:
        last = tirx.const(axis.extent - side, tile.ty)
        return tirx.min(tile * side, last) if axis.extent % side else tile * side

    def body(task: Any, views: Views) -> None:
        at = _unfused(tirx.floordiv(task, begins), outer)
        at[other.var] = T.bind(begin(tirx.floormod(task, begins), other))
        with T.serial(*_upto(-(-inner.extent // side), inner)) as tile:
            at[inner.var] = T.bind(begin(tile, inner))
            _tile(plan, at, views)

    return _kernel(func, plan.nest, size_of(outer) * begins, body, machine)


def _runs(func: tirx.PrimFunc, nest: Nest, machine: Machine) -> tirx.PrimFunc:
    """Runs of elements that are neighbours in all that is read and written."""
    *outer, last = nest.axes
    apart = any(load.strides[-1] is None for load in nest.loads)
    several = outer.pop() if outer and (last.extent < _LEAST or apart) else None

    def body(task: Any, views: Views) -> None:
        at = _unfused(task, outer)
        with T.serial(*_upto((several or last).extent, last)) as place:
            if several is None:
                _element(nest, {**at, last.var: place}, views, {})
                return
            # Neighbours from a few places: LLVM makes whole vectors of loads and shuffles of that.
            for lane in range(last.extent):
                own = {**at, several.var: place, last.var: tirx.const(lane, last.var.ty)}
                _element(nest, own, views, {})

    return _kernel(func, nest, size_of(outer), body, machine)


def _kernel(
    func: tirx.PrimFunc,
    nest: Nest,
    tasks: int,
    body: Callable[[Any, Views], None],
    machine: Machine,
) -> tirx.PrimFunc:
    """The function with tasks that threads share in place of its loops."""
    work = size_of(nest.axes)
    parallel = work >= PARALLEL_MIN_WORK and tasks > 1 and machine.num_threads > 1
    with IRBuilder() as ib:
        with T.seq_scope():
            views: dict[Any, Any] = {}
            for access in [*nest.loads, nest.store]:
                if access.buffer not in views:
                    views[access.buffer] = flat_view(access.buffer)
            loop = T.parallel if parallel else T.serial
            with loop(*_upto(tasks, nest.axes[-1])) as task:
                body(task, views)
        loops = ib.get()
    realize = func.body
    block = with_buffers(realize.block, loops, [])
    return func.with_body(
        s_tir.SBlockRealize(realize.iter_values, realize.predicate, block, realize.span)
    )


def _upto(count: int, axis: Axis) -> tuple[Any, Any]:
    """A loop's limits, of the type that an axis has."""
    return tirx.const(0, axis.var.ty), tirx.const(count, axis.var.ty)


def _unfused(task: Any, axes: Sequence[Axis]) -> dict[Any, Any]:
    """Where a task is along axes that were fused."""
    at: dict[Any, Any] = {}
    for axis in reversed(axes):
        at[axis.var] = T.bind(tirx.floormod(task, axis.extent))
        task = tirx.floordiv(task, axis.extent)
    return at


def _tile(plan: _Plan, at: dict[Any, Any], views: Views) -> None:
    """One tile, its first element at ``at``."""
    nest, side = plan.nest, plan.side
    rows, columns = nest.axes[plan.across].var, nest.axes[-1].var
    made = list[list[Any]]()
    for load in plan.crossing:
        first, stride = T.bind(put(load.place, at)), load.step(-1)
        read = [tirx.Ramp(first + k * stride, 1, side) for k in range(side)]
        made.append(transposed([T.bind(tirx.BufferLoad(views[load.buffer], [r])) for r in read]))
    if isinstance(nest.store.load.value, TensorLoad):
        first, stride = T.bind(put(nest.store.place, at)), nest.store.step(plan.across)
        for k, vector in enumerate(made[0]):
            written = tirx.Ramp(first + k * stride, 1, side)
            T.buffer_store(views[nest.store.buffer], vector, [written])
        return
    tiles = list[Any]()
    for load, vectors in zip(plan.crossing, made, strict=True):
        kept = T.alloc_buffer((side * side,), load.buffer.dtype, scope="local")
        for k, vector in enumerate(vectors):
            T.buffer_store(kept, vector, [tirx.Ramp(k * side, 1, side)])
        tiles.append(kept)
    for k in range(side):
        with T.vectorized(*_upto(side, nest.axes[-1])) as lane:
            own = {**at, rows: at[rows] + k, columns: at[columns] + lane}
            values = [tirx.BufferLoad(tile, [k * side + lane]) for tile in tiles]
            _element(nest, own, views, dict(zip(map(id, plan.crossing), values, strict=True)))


def _element(nest: Nest, at: dict[Any, Any], views: Views, given: dict[int, Any]) -> None:
    """Compute and store one element; ``given`` has values of accesses by their identities."""

    def element(load: TensorLoad) -> Any:
        access = next(one for one in nest.loads if tvm_ffi.structural_equal(one.load, load))
        if id(access) in given:
            return given[id(access)]
        return tirx.BufferLoad(views[access.buffer], [put(access.place, at)])

    store = nest.store.load
    value = tvm_ffi.structural_map(store.value, [(TensorLoad, element)])
    value = put(value, {var: put(own, at) for var, own in nest.values.items()})
    T.buffer_store(views[nest.store.buffer], value, [put(nest.store.place, at)])
