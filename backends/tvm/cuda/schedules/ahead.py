"""Operands that are on their way while others are multiplied.

A block of threads that has one stage of its operands in shared memory and the next in registers
waits for global memory in every stage. With ``cp.async`` (sm_80 and later) three are on their way,
past the registers. TVM pipelines the loop by annotations; its pass that writes ``cp.async`` takes a
copy with one condition, where zeros are for what lies outside.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from collage.backends.tvm.cuda.schedules._base import Gpu

_MOST_AHEAD = 3

_STATIC_BYTES = 48 << 10
"""Of shared memory, which a kernel has without asking for more."""

_SMALL_CHIPS = (86, 87, 89, 120, 121)
"""With 99 KiB for a block at the most; others have 163 KiB and more."""


def stages_ahead(steps: int, stage_bytes: int, result_bytes: int, gpu: Gpu) -> int:
    """How many stages are copied before they are needed.

    Parameters
    ----------
    steps : int
        Stages of the loop.
    stage_bytes : int
        Of both operands in one stage, in dynamic shared memory.
    result_bytes : int
        Of what passes through shared memory afterwards.
    gpu : Gpu
        Its architecture says how much there is.

    Returns
    -------
    int
        2 or 3, or 0: one stage at a time, as short loops and large tiles have it.
    """
    most = (96 if gpu.sm in _SMALL_CHIPS else 160) << 10
    for ahead in range(_MOST_AHEAD, 1, -1):
        dynamic = stage_bytes * (ahead + 1)
        # TVM asks for more where dynamic memory alone exceeds what is static.
        fits = dynamic >= _STATIC_BYTES or dynamic + result_bytes <= _STATIC_BYTES
        if steps > ahead and fits and dynamic + result_bytes <= most:
            return ahead
    return 0


def is_plain_copy(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether a stage copies elements as they are, or zeros, and computes nothing.

    Parameters
    ----------
    sch : s_tir.Schedule
        Of the kernel.
    block : SBlockRV
        A copy to shared memory, with all that is computed on the way.

    Returns
    -------
    bool
        False where an element is computed from others, or is of another type.
    """
    value = sch.get(block).body.value
    while _condition(value) is not None:
        value = value.args[1]
    return isinstance(value, tvm.ir.TensorLoad)


def one_condition(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make one condition of several under which zero is copied.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled.

    Returns
    -------
    tirx.PrimFunc
        ``a if p and q else 0`` in place of ``(a if q else 0) if p else 0``.
    """

    def merged(call: tvm.ir.Call) -> Any:
        outer = _condition(call)
        inner = None if outer is None else _condition(call.args[1])
        if inner is None:
            return call
        _, value, zero = call.args[1].args
        return tirx.if_then_else(tirx.And(outer, inner), value, zero)

    body = tvm_ffi.structural_map(func.body, [(tvm.ir.Call, merged)], order="post")
    return func.with_body(body)


def _condition(value: Any) -> Any:
    """Of what is zero where it does not hold; None of anything else."""
    if not isinstance(value, tvm.ir.Call) or getattr(value.op, "name", "") != "prim.if_then_else":
        return None
    other = value.args[2]
    zero = isinstance(other, tirx.FloatImm) and float(other.value) == 0.0
    return value.args[0] if zero else None
