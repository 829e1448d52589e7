"""OpenBLAS on a CPU: matrix products with their bias and activation, one operator at a time."""

from collage.backends.openblas.backend import OpenBLASBackend

__all__ = ["OpenBLASBackend"]
