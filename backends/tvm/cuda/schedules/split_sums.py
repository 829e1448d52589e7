"""Long sums of small products in parts: as many products as there are parts, then their sum.

A convolution of 14 x 14 places to 152 channels has 39 tiles, on a chip with 132 multiprocessors,
and each of them adds up 2,736 products alone. Cut into parts, which are an axis of batches to the
schedule of products, the sum has a block for each; a second kernel adds what they wrote in float32
and does all that follows the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tvm import s_tir
from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain

from collage.backends.tvm.common.blocks import axes_of, loop_extent

_ROW = 8
"""Terms that a part takes in a row at the least: what one load brings."""

_MOST_PARTS = 32

_FIRST_US = 6.0
"""What a kernel takes besides its stages."""

_STEP_US = 0.28
"""What a block takes for one stage of shared memory, others on their way (results/tiles.md)."""

_AT_ONCE = 2.5
"""Blocks that a multiprocessor runs beside each other in the time of one."""

_SECOND_KERNEL_US = 3.0

_BYTES_PER_US = 1.5e6
"""What is written and read again between both kernels lies in the second-level cache."""

_GAIN = 0.8
"""Of the estimated time: what is saved by less is not told from chance."""

_THREADS = 256

_FEWEST_THREADS = 64


def choose_parts(
    terms: Sequence[int], blocks: int, results: int, stage: int, num_sms: int
) -> tuple[int, ...]:
    """Into how many parts each axis of a sum is cut.

    Parameters
    ----------
    terms : sequence of int
        Extents of the summed axes, outermost first; rows of the operands lie along the last.
    blocks : int
        Tiles of the result.
    results : int
        Elements of the result, with what tiles compute beyond it.
    stage : int
        Terms of one stage of shared memory.
    num_sms : int
        Multiprocessors.

    Returns
    -------
    tuple of int
        A divisor of each extent; all 1 where parts would not be estimated to gain a fifth.
    """

    def microseconds(parts: tuple[int, ...]) -> float:
        count = math.prod(parts)
        steps = math.ceil(math.prod(terms) // count / stage)
        crowd = max(1.0, blocks * count / num_sms / _AT_ONCE)
        time = _FIRST_US + steps * crowd * _STEP_US
        if count > 1:
            time += _SECOND_KERNEL_US + 8 * results * count / _BYTES_PER_US
        return time

    whole = (1,) * len(terms)
    best = min(cuts(terms), key=lambda parts: (microseconds(parts), math.prod(parts)))
    return best if microseconds(best) < _GAIN * microseconds(whole) else whole


def cuts(terms: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to cut the axes of a sum.

    Parameters
    ----------
    terms : sequence of int
        As for :func:`choose_parts`.

    Yields
    ------
    tuple of int
        A divisor of each extent, of the last one in whole loads; all 1 first.
    """
    *outer, last = terms
    divisors = [[d for d in range(1, _MOST_PARTS + 1) if extent % d == 0] for extent in outer]
    divisors.append([d for d in range(1, _MOST_PARTS + 1) if last % (d * _ROW) == 0] or [1])
    return (cut for cut in itertools.product(*divisors) if math.prod(cut) <= _MOST_PARTS)


def split_sum(sch: s_tir.Schedule, main: Any, parts: Sequence[int]) -> Any:
    """Cut a sum, so that parts of it are an axis of a block before it.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of a kernel as it is written, one loop for each axis of its blocks.
    main : SBlockRV
        The sum.
    parts : sequence of int
        As :func:`choose_parts` answers; not all 1.

    Returns
    -------
    SBlockRV
        The block that computes the parts, with an axis more; ``main`` adds them up.
    """
    axes = axes_of(sch, main) or []
    loops = list(sch.get_loops(main))
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if not axis.reduce]
    summed = [loop for loop, axis in zip(loops, axes, strict=True) if axis.reduce]
    outer, inner = [], []
    for loop, count in zip(summed, parts, strict=True):
        # A loop of one step left over would be an axis that no operand is read by.
        if count == 1:
            inner.append(loop)
        elif count == loop_extent(sch, loop):
            outer.append(loop)
        else:
            part, rest = sch.split(loop, [count, None])
            outer.append(part)
            inner.append(rest)
    sch.reorder(*spatial, *outer, *inner)
    part = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    partial = sch.rfactor(part, 0)
    # Layouts of blocks are changed only where loops stand in the order of the block's axes.
    loops = list(sch.get_loops(partial))
    sch.reorder(loops[len(spatial)], *loops[: len(spatial)])
    return partial


def schedule_total(sch: s_tir.Schedule, total: Any) -> None:
    """The kernel that adds up the parts: a thread for each result, with all that follows.

    Parameters
    ----------
    sch : s_tir.Schedule
        Whose other kernel is scheduled already.
    total : SBlockRV
        What :func:`split_sum` left of the sum.
    """
    store = sch.cache_write(total, 0, "local")
    auto_inline_consumer_chain(sch, store)
    flat = sch.fuse(*sch.get_loops(store))
    # Where blocks of threads divide the result, no thread has to ask whether it has an element.
    whole = math.gcd(loop_extent(sch, flat), _THREADS)
    block, thread = sch.split(flat, [None, whole if whole >= _FEWEST_THREADS else _THREADS])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.compute_at(total, thread)
