"""From partition functions to calls of PrimFuncs whose loops are bound to threads.

The passes are those of Relax's CUDA pipeline, in its order; legalizations and schedules are ours
first, DLight's after them. What is left inline in ``main`` goes the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import relax, tirx

from collage.backends.tvm.common.gathers import mark_gathers
from collage.backends.tvm.common.numbers.exact import EXACT
from collage.backends.tvm.common.numbers.wide import compute_wide
from collage.backends.tvm.common.numbers.wide_operators import widen_operators
from collage.backends.tvm.common.reads import inline_reads
from collage.backends.tvm.cuda.generated import as_generated, with_own_rounding
from collage.backends.tvm.cuda.legalize import legalizations
from collage.backends.tvm.cuda.rows.dispatch import dispatch_rows, expand_statistics
from collage.backends.tvm.cuda.schedules import Gpu, schedule_function

Scheduler = Callable[[tirx.PrimFunc], tirx.PrimFunc]

_MOVED_WITH_LOOKUPS = 1 << 18
"""Elements of what is looked up, up to which a launch less is worth more than an easy index."""


def legalize_passes(schedule: str = "default") -> list[tvm.transform.Pass]:
    """From operators to fused, unscheduled tensor programs.

    Parameters
    ----------
    schedule : str
        With ``plain`` legalizations are TVM's own.

    Examples
    --------
    >>> [step.info.name for step in legalize_passes()][-2:]
    ['FuseTIR', 'ComputeWide']
    """
    return [
        expand_statistics() if schedule == "plain" else dispatch_rows(),
        widen_operators(),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(dict(EXACT if schedule == "plain" else legalizations())),
        relax.transform.AnnotateTIROpPattern(),
        mark_gathers(_MOVED_WITH_LOOKUPS),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        inline_reads(),
        relax.transform.FuseTIR(),
        compute_wide(),
    ]


def scheduler(device: tvm.target.Target, schedule: str) -> Scheduler:
    """Turns a fused tensor program into one that TVM can generate CUDA from.

    Parameters
    ----------
    device : tvm.target.Target
        A ``cuda`` target, whose limits schedules keep to.
    schedule : str
        ``default``, ``dlight``, ``none`` or ``plain``, as in
        :class:`~collage.backends.tvm.options.TVMOptions`.

    Returns
    -------
    Scheduler
        Given a fused kernel, it returns it scheduled; kernels that no family takes are a
        ``CompileError``.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((4096,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((4096,), lambda i: x[i] + 1)])
    >>> schedule = scheduler(tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}), "default")
    >>> str(schedule(func).attrs["collage.schedule"])
    'elementwise'
    """
    gpu = Gpu.of_target(device)

    def apply(func: tirx.PrimFunc) -> tirx.PrimFunc:
        return finish(schedule_function(with_own_rounding(func), gpu, schedule))

    return apply


def finish(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Last touches on a scheduled program; the mark keeps TVM's own rules away from it.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    >>> bool(finish(func).attrs["tirx.is_scheduled"])
    True
    """
    body = tvm_ffi.structural_map(func.body, [(tirx.For, _if_any)])
    return as_generated(func.with_body(body)).with_attr("tirx.is_scheduled", True)


def _if_any(loop: tirx.For) -> tirx.Stmt:
    """No launch for a result without elements: it would have one thread, which reads and writes."""
    empty = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 0
    return tirx.Evaluate(0) if empty else loop
