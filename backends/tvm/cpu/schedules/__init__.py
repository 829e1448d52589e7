"""CPU schedules for PrimFuncs, one family of kernels per file.

A family either returns a scheduled function or a :class:`Refusal` with its reason; the next, more
general family is tried then, and at the very end the plain loops stay. The attribute
``collage.schedule`` of the result tells which family it was and why those before it refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import tvm
from tvm import s_tir, tirx

from collage.backends.tvm.common.families import (
    OTHER_KIND,
    SCHEDULE_ATTR,
    WRITTEN_ATTR,
    Refusal,
    first_fitting,
)
from collage.backends.tvm.common.machine import Machine
from collage.backends.tvm.cpu.schedules import (
    conv2d,
    depthwise,
    flat_depthwise,
    generic,
    matmul,
    pieces,
    transpose,
)
from collage.backends.tvm.cpu.schedules.overlapping import cut_overlapping
from collage.backends.tvm.cpu.schedules.reductions import along_memory, rowwise

__all__ = ["SCHEDULE_ATTR", "Machine", "schedule_function"]


def _written(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc | Refusal:
    """As it is, where a legalization wrote it out for this machine."""
    return func if func.attrs.get(WRITTEN_ATTR) else OTHER_KIND


_FAMILIES: tuple[tuple[str, Callable[..., tirx.PrimFunc | Refusal]], ...] = (
    ("written", _written),
    ("conv2d", conv2d.schedule),
    ("depthwise", depthwise.schedule),
    ("depthwise", flat_depthwise.schedule),
    ("matmul", matmul.schedule),
    ("pieces", pieces.schedule),
    ("rowwise", rowwise.schedule),
    ("reduction", along_memory.schedule),
    ("transpose", transpose.schedule),
    ("generic", generic.schedule),
)


_ERRORS = (s_tir.ScheduleError, tvm.error.InternalError)
"""A primitive's own no, and what it did not reckon with: the next family may take the kernel."""


def schedule_function(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Schedule one fused kernel with the first family that takes it.

    Parameters
    ----------
    func, machine
        The kernel, and what runs it.

    Returns
    -------
    tirx.PrimFunc
        With the attribute :data:`SCHEDULE_ATTR`, which names the family and why those before it
        refused; unscheduled where none takes it.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((8,), "float32", name="x")
    >>> func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    >>> machine = Machine(vector_bytes=32, num_registers=16, num_threads=4)
    >>> str(schedule_function(func, machine).attrs[SCHEDULE_ATTR])
    'generic'
    """
    attempts = [(name, functools.partial(family, machine=machine)) for name, family in _FAMILIES]
    scheduled, refusals = first_fitting(func, attempts, _ERRORS)
    if scheduled is not None:
        return cut_overlapping(scheduled)
    return func.with_attr(SCHEDULE_ATTR, "; ".join(["none", *refusals]))
