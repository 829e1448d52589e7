"""How the work of a reduction is shared: which loads lie side by side, how many threads and blocks.

All kernels with reductions over the same places come to one picture. A block of threads has an axis
``p`` over results and an axis ``q`` over the terms of each. Where terms lie side by side in memory
(``by rows``), neighbouring threads take neighbouring terms; where results do (``by columns``),
neighbouring threads take neighbouring results. Either way a thread's loads are as wide as they can
be. Few results with many terms are summed in two kernels, the first one in parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collage.backends.tvm.common.blocks import Axis, buffer_stride
from collage.backends.tvm.cuda.schedules._base import VECTOR_BYTES, WARP, Gpu, dtype_bytes
from collage.backends.tvm.cuda.schedules._vector import in_a_row, is_aligned

_THREADS_PER_SM = 1024
"""Threads that keep enough loads under way to use the memory's bandwidth."""

_MOST_THREADS = 1024

_ROW_THREADS = 256
"""Threads of a block that does several short rows."""

_PER_THREAD = 4
"""Loads of a thread below which more threads for one result do not pay."""

_LONG = 64
"""Loads of a thread above which one result is worth more than a warp."""

_SEGMENT = 128
"""Bytes that a group of neighbouring threads reads in a row."""

_LEAST_SEGMENT = 64
"""The least of it, where there are few results."""

MOST_TOGETHER = 8
"""Results per thread that share what was loaded, as the rows of a skinny product do."""


@dataclass(frozen=True)
class Access:
    """What a reduction's main operand looks like.

    Attributes
    ----------
    spatial : tuple of Axis
        Axes of the results.
    reduced : tuple of Axis
        Axes that are summed over, the one with the largest step in memory first.
    shared : tuple of bool
        Of each result's axis: whether the operand does not depend on it.
    fastest : Axis
        Along which the operand's elements lie closest to each other.
    stride : int
        Their distance.
    bytes : int
        Of the widest element that is read along it.
    most_lanes : int
        Elements that may be read at once.
    """

    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    shared: tuple[bool, ...]
    fastest: Axis
    stride: int
    bytes: int
    most_lanes: int

    @property
    def by_rows(self) -> bool:
        """Whether terms, not results, lie side by side."""
        return self.fastest.reduce

    @property
    def together(self) -> int:
        """Results that need the same elements of the operand."""
        return math.prod(a.extent for a, s in zip(self.spatial, self.shared, strict=True) if s)

    @property
    def results(self) -> int:
        """Results that need different ones."""
        return math.prod(a.extent for a, s in zip(self.spatial, self.shared, strict=True) if not s)

    @property
    def terms(self) -> int:
        """Of each result."""
        return math.prod(axis.extent for axis in self.reduced)


@dataclass(frozen=True)
class Plan:
    """How a kernel's threads share the work.

    Attributes
    ----------
    by_rows : bool
        Whether ``q`` is the axis x of threads, and ``p`` the axis y, or the other way round.
    lanes : int
        Elements of one load: terms by rows, results by columns.
    p, q : int
        Threads over results and over terms.
    parts : int
        Into which the terms of a result are divided among blocks.
    """

    by_rows: bool
    lanes: int
    p: int
    q: int
    parts: int = 1

    @property
    def p_tag(self) -> str:
        return "threadIdx.y" if self.by_rows else "threadIdx.x"

    @property
    def q_tag(self) -> str:
        return "threadIdx.x" if self.by_rows else "threadIdx.y"


def access_of(stmt: Any, axes: Sequence[Axis]) -> Access | None:
    """How a reduction reads its main operand; None where the places are no linear function.

    Parameters
    ----------
    stmt : SBlock
        The reduction.
    axes : sequence of Axis
        Its axes.

    Returns
    -------
    Access or None
        Of the operand with most bytes; None too where windows overlap.
    """
    best: Any = None
    for region in stmt.reads:
        if any(region.source.same_as(write.source) for write in stmt.writes):
            continue
        strides = [buffer_stride(region, axis.var) for axis in axes]
        used = [a.extent for a, s in zip(axes, strides, strict=True) if s != 0]
        footprint = math.prod(used) * dtype_bytes(region.source)
        if best is None or footprint > best[0]:
            best = (footprint, strides, region)
    if best is None:
        return None
    _, strides, region = best
    if any(stride is None for stride in strides):
        return None
    steps = [(abs(s), a) for a, s in zip(axes, strides, strict=True) if s and a.extent > 1]
    if not steps or not _all_different(steps):
        return None
    stride, fastest = min(steps, key=lambda step: step[0])
    by_step = dict(zip([a.var for a in axes], strides, strict=True))
    reduced = [axis for axis in axes if axis.reduce]
    spatial = [axis for axis in axes if not axis.reduce]
    rows = [r for r in stmt.reads if in_a_row(r, fastest.var)]
    widest = max(dtype_bytes(r.source) for r in [*rows, region])
    lanes = VECTOR_BYTES // widest if any(r.same_as(region) for r in rows) else 1
    while lanes > 1 and (
        fastest.extent % lanes or not all(is_aligned(r, fastest.var, lanes) for r in rows)
    ):
        lanes //= 2
    return Access(
        tuple(spatial),
        tuple(sorted(reduced, key=lambda axis: -abs(by_step[axis.var] or 0))),
        tuple(by_step[axis.var] == 0 for axis in spatial),
        fastest,
        stride,
        widest,
        lanes,
    )


def _all_different(steps: list[tuple[int, Axis]]) -> bool:
    """Whether every element is read for one place only: no windows that overlap."""
    reach = 0
    for stride, axis in sorted(steps, key=lambda step: step[0]):
        if stride <= reach:
            return False
        reach += stride * (axis.extent - 1)
    return True


def plan_of(access: Access, gpu: Gpu, *, may_split: bool) -> Plan:
    """Threads and blocks for a reduction.

    Parameters
    ----------
    access : Access
        How it reads.
    gpu : Gpu
        Which is to be filled.
    may_split : bool
        Whether results may be summed in parts by two kernels.

    Returns
    -------
    Plan
        Its threads may be more than a block of the GPU has.

    Examples
    --------
    >>> import tvm
    >>> from tvm import tirx
    >>> gpu = Gpu.of_target(tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    >>> rows = Axis(tirx.Var("i", "int32"), 4096, False)
    >>> terms = Axis(tirx.Var("k", "int32"), 1024, True)
    >>> plan_of(Access((rows,), (terms,), (False,), terms, 1, 2, 8), gpu, may_split=True)
    Plan(by_rows=True, lanes=8, p=8, q=32, parts=1)
    """
    if access.by_rows:
        return _by_rows(access, gpu, may_split=may_split)
    return _by_columns(access, gpu, may_split=may_split)


def _by_rows(access: Access, gpu: Gpu, *, may_split: bool) -> Plan:
    lanes = access.most_lanes
    while lanes > 1 and access.terms // lanes < 4:
        lanes //= 2
    loads = math.ceil(access.terms / lanes)
    wanted = gpu.num_sms * _THREADS_PER_SM
    q = WARP
    while q > 4 and q > loads:
        q //= 2
    while q < _ROW_THREADS and (
        (access.results * q * 2 < wanted and loads > _PER_THREAD * q) or loads > _LONG * q
    ):
        q *= 2
    parts = 1
    if may_split and access.results * q * 2 < wanted and loads >= _PER_THREAD * _MOST_THREADS:
        most = loads // (_PER_THREAD * q)
        parts = divisor(loads, max(1, min(math.ceil(wanted / (access.results * q)), most)))
    if parts == 1:
        most = min(_MOST_THREADS, gpu.max_threads)
        while q < most and access.results * q * 2 < wanted and loads > _PER_THREAD * q:
            q *= 2
    # A block's results are neighbours along one axis: places in several of them are too involved.
    side = [
        a.extent
        for a, shared in zip(access.spatial, access.shared, strict=True)
        if a.extent > 1 and not shared
    ]
    p = divisor(side[-1] if side else 1, max(1, _ROW_THREADS // q))
    while p > 1 and access.results // p < gpu.num_sms:
        p = divisor(p, p // 2)
    return Plan(True, lanes, p, q, parts)


def _by_columns(access: Access, gpu: Gpu, *, may_split: bool) -> Plan:
    extent = access.fastest.extent
    lanes = max(1, min(access.most_lanes, 4 * MOST_TOGETHER // access.together))
    wanted = gpu.num_sms * _THREADS_PER_SM
    if not may_split:
        # A thread that adds up many results at once leaves too few of them.
        while lanes > 1 and (extent // lanes < 8 or access.results // lanes * 32 < wanted // 4):
            lanes //= 2
    threads = min(512, gpu.max_threads)
    segment = max(1, _SEGMENT // (lanes * access.bytes))
    columns = extent // lanes
    p = divisor(columns, max(segment, WARP // lanes)) if columns > 2 * WARP else columns
    narrow = max(1, _LEAST_SEGMENT // (lanes * access.bytes))
    while (
        not may_split
        and p >= 2 * narrow
        and p % 2 == 0
        and (access.results // (lanes * p) < gpu.num_sms)
    ):
        p //= 2
    q = 2
    while q * p * 2 <= threads and (
        access.terms > _PER_THREAD * q and access.results // lanes * q < wanted
    ):
        q *= 2
    while q * p * 2 <= threads and access.terms > _LONG * q:
        q *= 2
    parts = 1
    filled = access.results // lanes * q
    if may_split and filled * 2 < wanted and access.terms >= 2 * _PER_THREAD * q:
        most = access.terms // (_PER_THREAD * q)
        parts = divisor(access.terms, max(1, min(math.ceil(wanted / filled), most)))
    return Plan(False, lanes, p, q, parts)


def divisor(number: int, most: int) -> int:
    """The largest divisor that is no larger than ``most``.

    Parameters
    ----------
    number, most : int
        Positive.

    Returns
    -------
    int
        At least 1.
    """
    return next(d for d in range(max(1, min(number, most)), 0, -1) if number % d == 0)
