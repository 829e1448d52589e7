"""The schedule for loops that TVM wrote out by hand for a CPU: one thread goes through all of them.

They have no stages that a schedule could take apart, and whether their iterations are independent
nobody knows. Slow, and right.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from collage.backends.tvm.common.families import OTHER_KIND, Refusal
from collage.backends.tvm.cuda.schedules._base import Gpu

_AXES = ("blockIdx.x", "threadIdx.x")


def schedule(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
    """Run the whole kernel in one thread.

    Parameters
    ----------
    func, gpu
        Any that allocates nothing between its loops, and what runs it.

    Returns
    -------
    tirx.PrimFunc | Refusal
        Its loops serial, or :data:`OTHER_KIND` where it allocates something.
    """
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize) or root.block.alloc_buffers:
        return OTHER_KIND
    body = tvm_ffi.structural_map(root.block.body, [(tirx.For, _serial)])
    block, thread = (tirx.Var(tag.replace(".", "_"), "int32") for tag in _AXES)
    return in_threads(func, body, (block, 1), (thread, 1))


def in_threads(
    func: tirx.PrimFunc, body: tirx.Stmt, blocks: tuple[Any, int], threads: tuple[Any, int]
) -> tirx.PrimFunc:
    """A program whose whole body each thread runs.

    Parameters
    ----------
    func : tirx.PrimFunc
        The program, with nothing but a root block.
    body : tirx.Stmt
        What a thread does.
    blocks, threads : (Var, int)
        The variables in it that number blocks, and threads within one, and how many there are.

    Returns
    -------
    tirx.PrimFunc
        With the loops over both around the body.
    """
    for tag, (var, extent) in reversed(list(zip(_AXES, (blocks, threads), strict=True))):
        body = tirx.For(
            var,
            tirx.const(0, "int32"),
            tirx.const(extent, "int32"),
            tirx.ForKind.THREAD_BINDING,
            body,
            tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag),
        )
    root = func.body
    block = root.block
    return func.with_body(
        s_tir.SBlockRealize(
            root.iter_values,
            root.predicate,
            s_tir.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, body),
        )
    )


def _serial(loop: tirx.For) -> Any:
    if loop.kind == tirx.ForKind.SERIAL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
