"""The GPU's way from operators to scheduled kernels."""

from collage.backends.tvm.cuda.lower import finish, legalize_passes, scheduler

__all__ = ["finish", "legalize_passes", "scheduler"]
