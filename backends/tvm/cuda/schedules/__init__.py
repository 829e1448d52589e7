"""GPU schedules for PrimFuncs, one family of kernels per file, DLight's rules behind them.

A family either returns a scheduled function or a refusal with its reason; the next one is tried
then. What comes last binds whatever is left to threads. The attribute
``collage.schedule`` of the result tells which one it was and why those before it refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from collage.backends.contract.errors import CompileError
from collage.backends.tvm.common.families import (
    OTHER_KIND,
    SCHEDULE_ATTR,
    Refusal,
    first_fitting,
)
from collage.backends.tvm.cuda.schedules import (
    elementwise,
    independent,
    one_thread,
    outermost,
    own_threads,
    reduction,
    tensor_core,
    transpose,
    window,
)
from collage.backends.tvm.cuda.schedules._base import (
    Family,
    Gpu,
    has_opaque_threads,
    unbound_stores,
)
from collage.backends.tvm.cuda.schedules.empty import computes_nothing, nothing

__all__ = ["Gpu", "schedule_function"]

_ERRORS = (RuntimeError, ValueError, AssertionError, IndexError, KeyError, TypeError)
"""A primitive's own check said no; DLight's rules rely on that too."""


def _dlight(rule: Callable[[], dlight.ScheduleRule]) -> Family:
    """One of DLight's rules as a family."""

    def family(func: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | Refusal:
        with gpu.target:
            answer = rule().apply(func, gpu.target, False)
        if isinstance(answer, list):
            answer = answer[0] if answer else None
        return OTHER_KIND if answer is None else answer.mod["main"]

    return family


_OWN: tuple[tuple[str, Family], ...] = (
    ("transpose", transpose.schedule),
    ("elementwise", elementwise.schedule),
    ("reduction", reduction.schedule),
    ("tensor_core", tensor_core.schedule),
    ("tensor_core.whole", tensor_core.schedule_whole),
    ("window", window.schedule),
)
_DLIGHT: tuple[tuple[str, Family], ...] = (
    ("dlight.Matmul", _dlight(dlight.gpu.Matmul)),
    ("dlight.GEMV", _dlight(dlight.gpu.GEMV)),
    ("dlight.LowBatchGEMV", _dlight(dlight.gpu.LowBatchGEMV)),
    ("dlight.Reduction", _dlight(dlight.gpu.Reduction)),
    ("dlight.GeneralReduction", _dlight(dlight.gpu.GeneralReduction)),
    ("dlight.Transpose", _dlight(dlight.gpu.Transpose)),
)
LAST: tuple[tuple[str, Family], ...] = (
    ("independent", independent.schedule),
    ("dlight.Fallback", _dlight(dlight.gpu.Fallback)),
    ("outermost", outermost.schedule),
    ("one_thread", one_thread.schedule),
)

_FAMILIES = {
    "default": (*_OWN, *_DLIGHT, *LAST),
    "dlight": (*_DLIGHT, *LAST),
    "none": LAST,
    "plain": LAST,
}
"""By value of the option ``schedule``; a GPU has no way to run plain loops, so ``none`` binds them
to threads and does nothing else."""


def schedule_function(func: tirx.PrimFunc, gpu: Gpu, schedule: str = "default") -> tirx.PrimFunc:
    """Schedule one fused kernel with the first family that takes it.

    Parameters
    ----------
    func, gpu
        Fused and unscheduled, and what runs it.
    schedule : str
        ``default``, ``dlight``, ``none`` or ``plain``.

    Returns
    -------
    tirx.PrimFunc
        With the attribute :data:`SCHEDULE_ATTR`, which names the family and why those before it
        refused.

    Raises
    ------
    CompileError
        When even the last family leaves a part of the kernel outside of every thread.

    Examples
    --------
    >>> import tvm
    >>> from tvm import te
    >>> x = te.placeholder((4096,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((4096,), lambda i: x[i] + 1)])
    >>> gpu = Gpu.of_target(tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}))
    >>> str(schedule_function(func, gpu, "none").attrs[SCHEDULE_ATTR])
    'dlight.Fallback'
    """
    if func.attrs.get("tirx.is_scheduled", False):
        return func.with_attr(SCHEDULE_ATTR, "own threads")
    if computes_nothing(func):
        return nothing(func).with_attr(SCHEDULE_ATTR, "empty")
    if has_opaque_threads(func):
        return own_threads.schedule(func, gpu).with_attr(SCHEDULE_ATTR, "own threads")
    attempts = [
        (name, functools.partial(_attempt, family, gpu)) for name, family in _FAMILIES[schedule]
    ]
    scheduled, refusals = first_fitting(func, attempts, _ERRORS)
    if scheduled is None:
        raise CompileError(f"no schedule takes the kernel: {'; '.join(refusals)}", value=refusals)
    return scheduled


def _attempt(family: Family, gpu: Gpu, func: tirx.PrimFunc) -> tirx.PrimFunc | Refusal:
    answer = family(func, gpu)
    loose = [] if isinstance(answer, Refusal) else unbound_stores(answer)
    if loose:
        return Refusal(f"{', '.join(sorted(set(loose)))} would be written outside of every thread")
    if not isinstance(answer, Refusal):
        # Some of DLight's schedules share a reduction in a way that cannot be compiled.
        s_tir.transform.LowerCrossThreadReduction()(tvm.IRModule({"main": answer}))
    return answer
