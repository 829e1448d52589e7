"""The CPU's way from operators to scheduled kernels: packed weights, vectors, a thread pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax, tirx

from collage.backends.tvm.common.gathers import mark_gathers
from collage.backends.tvm.common.numbers.exact import EXACT
from collage.backends.tvm.common.numbers.wide import compute_wide
from collage.backends.tvm.common.numbers.wide_operators import widen_operators
from collage.backends.tvm.common.reads import inline_reads
from collage.backends.tvm.cpu.bfloat16 import spell_bfloat16
from collage.backends.tvm.cpu.comparisons import COMPARISONS
from collage.backends.tvm.cpu.fast_math import use_fast_math
from collage.backends.tvm.cpu.legalize import legalizations
from collage.backends.tvm.cpu.schedules import Machine, plain, schedule_function
from collage.backends.tvm.cpu.schedules.repeating import cut_repeating


def legalize_passes(machine: Machine, schedule: str) -> list[tvm.transform.Pass]:
    """From operators to fused, unscheduled tensor programs.

    Parameters
    ----------
    machine : Machine
        What operators are laid out for.
    schedule : str
        Only with ``default`` are there legalizations of our own.

    Returns
    -------
    list[tvm.transform.Pass]
        To be run in this order; the kernels compute in float32 where an operand has fewer digits.

    Examples
    --------
    >>> machine = Machine(vector_bytes=32, num_registers=16, num_threads=4)
    >>> [step.info.name for step in legalize_passes(machine, "default")][-2:]
    ['FuseTIR', 'ComputeWide']
    """
    own = legalizations(machine) if schedule == "default" else {**EXACT, **COMPARISONS}
    return [
        widen_operators(),
        relax.transform.LegalizeOps(dict(own)),
        relax.transform.AnnotateTIROpPattern(),
        mark_gathers(0),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        inline_reads(),
        relax.transform.FuseTIR(),
        # TVM takes apart a kernel that moves bfloat16 from stage to stage, and drops a declaration.
        compute_wide(unkept=("bfloat16",)),
    ]


def schedule_all(
    funcs: Sequence[tirx.PrimFunc], machine: Machine, schedule: str
) -> list[tirx.PrimFunc]:
    """Parallel and vectorized schedules by kind of kernel; ``none`` leaves the loops as they are.

    Parameters
    ----------
    funcs : sequence of tirx.PrimFunc
        Fused, unscheduled kernels.
    machine : Machine
        Threads and vector registers.
    schedule : str
        ``default``, ``none`` or ``plain``.

    Returns
    -------
    list[tirx.PrimFunc]
        In the order of the kernels.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    >>> machine = Machine(vector_bytes=32, num_registers=16, num_threads=4)
    >>> str(schedule_all([func], machine, "default")[0].attrs["collage.schedule"])
    'generic'
    """
    ways: dict[str, Callable[[tirx.PrimFunc], tirx.PrimFunc]] = {
        "none": lambda func: func,
        "plain": plain.schedule,
        "default": lambda func: use_fast_math(schedule_function(func, machine)),
    }
    # Cut even where the loops are to stay as they are: LLVM compiles others wrongly.
    return [spell_bfloat16(cut_repeating(ways[schedule](func), machine)) for func in funcs]
