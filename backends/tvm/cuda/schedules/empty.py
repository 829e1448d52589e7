"""Kernels that have nothing to compute: each of their results has an axis of no element."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import s_tir, tirx


def computes_nothing(func: tirx.PrimFunc) -> bool:
    """Whether every tensor that a kernel writes for others has no elements.

    Parameters
    ----------
    func : tirx.PrimFunc
        Not yet scheduled.

    Returns
    -------
    bool
        False where an extent is not known.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((2, 0), "float32", name="x")
    >>> computes_nothing(te.create_prim_func([x, te.compute((2, 0), lambda i, j: x[i, j] + 1)]))
    True
    """
    given = set(func.params)
    written: list[tirx.Buffer] = []
    tvm_ffi.structural_walk(
        func.body, [(tirx.BufferStore, lambda stmt: written.append(stmt.buffer))]
    )
    results = [buffer for buffer in written if buffer in given]
    return bool(results) and all(_is_empty(buffer) for buffer in results)


def nothing(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel without its loops, which no thread could have a share of.

    Parameters
    ----------
    func : tirx.PrimFunc
        One that :func:`computes_nothing`.

    Returns
    -------
    tirx.PrimFunc
        Launches nothing.
    """
    block = func.body.block
    done = s_tir.SBlock([], [], [], block.name_hint, tirx.Evaluate(tirx.const(0, "int32")))
    return func.with_body(s_tir.SBlockRealize([], True, done))


def _is_empty(buffer: tirx.Buffer) -> bool:
    extents = [int(x) for x in buffer.shape if isinstance(x, tirx.IntImm)]
    return math.prod(extents) == 0
