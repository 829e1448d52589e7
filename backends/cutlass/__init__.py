"""CUTLASS on an NVIDIA GPU: kernels generated for each problem, one operator at a time."""

from collage.backends.cutlass.backend import CutlassBackend

__all__ = ["CutlassBackend"]
