"""Measuring on CUDA devices: facts, events, the flush of the second-level cache, clocks.

Nothing here is imported before a CUDA target is measured, and nothing needs ``pycuda``: where it is
not installed, TVM's own timers take the events. Nothing is exported: a device's policy names the
session, which imports the rest.
"""

__all__: list[str] = []
