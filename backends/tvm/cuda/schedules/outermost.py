"""The schedule that takes any kernel: independent outer loops become threads, the rest is serial.

DLight's ``Fallback`` wants every stage to be a plain nest of loops. Stages that hold stages of
their own (a pool whose window depends on the place, say) are left to this.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import fuse_all, leading_independent, root_blocks
from collage.backends.tvm.common.families import Refusal
from collage.backends.tvm.cuda.schedules._base import Gpu
from collage.backends.tvm.cuda.schedules.elementwise import bind_threads


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Bind each stage's leading independent loops, or run it in a single thread.

    Parameters
    ----------
    func, gpu
        Any kernel, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        A stage whose first loop is a reduction has a single thread.
    """
    sch = s_tir.Schedule(func)
    for block in root_blocks(sch):
        _bind_stage(sch, block, gpu)
    return sch.mod["main"]


def _bind_stage(sch: s_tir.Schedule, block: Any, gpu: Gpu) -> None:
    independent = leading_independent(sch, block)
    if not independent:
        # Only the order of the loops as they stand is known to be right.
        loops = sch.get_loops(block)
        outer = sch.add_unit_loop(loops[0] if loops else block)
        items = 1
    else:
        outer = fuse_all(sch, independent)
        extent = sch.get(outer).extent
        items = int(extent) if isinstance(extent, tirx.IntImm) else gpu.max_threads
    bind_threads(sch, outer, items, gpu)
