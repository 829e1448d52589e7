"""The GPU's way from operators to scheduled kernels: legalizations, then one schedule per kernel.

A kind of kernel with a schedule of its own is a file in ``schedules``.
"""

from collage.backends.tvm.cuda.lower import finish, legalize_passes, scheduler

__all__ = ["finish", "legalize_passes", "scheduler"]
