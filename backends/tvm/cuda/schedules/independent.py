"""The schedule for loops written out by hand whose turns are independent: a thread for each.

What importers write for batches of matrices, and for functions that go on until an element is known
well enough.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

from collage.backends.relax.independent import ATTRIBUTE
from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.cuda.schedules._base import Gpu
from collage.backends.tvm.cuda.schedules.one_thread import in_threads

_MOST_THREADS = 128


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Give each turn of the marked loop a thread.

    Few turns, which are long ones most of the time, have a block each before any has two threads.

    Parameters
    ----------
    func, gpu
        A program with one such loop, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        :data:`OTHER_KIND` where there is no such loop, or its number of turns is not known.
    """
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize) or root.block.alloc_buffers:
        return OTHER_KIND
    marked: list[tirx.For] = []

    def note(loop: tirx.For) -> None:
        if ATTRIBUTE in loop.annotations:
            marked.append(loop)

    tvm_ffi.structural_walk(root.block.body, [(tirx.For, note)])
    if len(marked) != 1 or not isinstance(marked[0].extent, tirx.IntImm):
        return OTHER_KIND
    count = int(marked[0].extent)
    threads = max(1, min(_MOST_THREADS, count // gpu.num_sms))
    block, thread = (tirx.Var(name, "int32") for name in ("block", "thread"))

    def turn(loop: tirx.For) -> Any:
        if ATTRIBUTE not in loop.annotations:
            return loop
        dtype = str(loop.loop_var.ty)
        number = (block * threads + thread).astype(dtype)

        def own(var: Var) -> Any:
            return number if var.same_as(loop.loop_var) else var

        body = tvm_ffi.structural_map(loop.body, [(Var, own)])
        return tirx.IfThenElse(number < tirx.const(count, dtype), body, None)

    body = tvm_ffi.structural_map(root.block.body, [(tirx.For, turn)])
    return in_threads(func, body, (block, -(-count // threads)), (thread, threads))
