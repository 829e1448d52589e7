"""The CPU's way from operators to scheduled kernels: legalizations, then one schedule per kernel.

A kind of kernel with a schedule of its own is a file in ``schedules``.
"""

from collage.backends.tvm.cpu.lower import legalize_passes, schedule_all

__all__ = ["legalize_passes", "schedule_all"]
