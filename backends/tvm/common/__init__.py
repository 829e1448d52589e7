"""What the CPU's and the GPU's way to scheduled kernels have in common.

:func:`lower_module` turns partitions into calls of scheduled tensor programs. A family of schedules
takes a kernel or gives a :class:`Refusal`, :func:`first_fitting` asks one after the other, and all
may fold stages first (:func:`inline_stages`). Questions about blocks, loops and accesses are in
``blocks``, what legalizations share is in ``legalization``.
"""

from collage.backends.tvm.common.families import (
    OTHER_KIND,
    SCHEDULE_ATTR,
    Refusal,
    first_fitting,
)
from collage.backends.tvm.common.inlining import inline_stages
from collage.backends.tvm.common.lower import lower_module

__all__ = [
    "OTHER_KIND",
    "SCHEDULE_ATTR",
    "Refusal",
    "first_fitting",
    "inline_stages",
    "lower_module",
]
