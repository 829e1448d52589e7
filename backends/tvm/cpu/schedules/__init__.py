"""CPU schedules for PrimFuncs, one family of kernels per file.

A family either returns a scheduled function or a :class:`Refusal` with its reason; the next, more
general family is tried then, and at the very end the plain loops stay. The attribute
``collage.schedule`` of the result tells which family it was and why those before it refused.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from collage.backends.tvm.common.blocks import Family, Machine, Refusal
from collage.backends.tvm.cpu.schedules import conv2d, depthwise, generic, matmul, rowwise

__all__ = ["Machine", "Refusal", "schedule_function"]

FAMILIES: tuple[tuple[str, Family], ...] = (
    ("conv2d", conv2d.schedule),
    ("depthwise", depthwise.schedule),
    ("matmul", matmul.schedule),
    ("rowwise", rowwise.schedule),
    ("generic", generic.schedule),
)
SCHEDULE_ATTR = "collage.schedule"


def schedule_function(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Schedule one fused kernel with the first family that takes it."""
    refusals: list[str] = []
    for name, family in FAMILIES:
        answer = _try_family(family, func, machine)
        if not isinstance(answer, Refusal):
            return answer.with_attr(SCHEDULE_ATTR, "; ".join([name, *refusals]))
        if answer.reason:
            refusals.append(f"not {name}: {answer.reason}")
    return func.with_attr(SCHEDULE_ATTR, "; ".join(["none", *refusals]))


def _try_family(family: Family, func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    try:
        return family(func, machine)
    except s_tir.ScheduleError as err:
        # A primitive's own check said no: the same as a refusal, with TVM's words as its reason.
        lines = [line.strip() for line in str(err).splitlines() if line.strip()]
        return Refusal(next((line for line in lines if "rror" in line), lines[0]))
