"""cuBLAS on an NVIDIA GPU: matrix products with cublasLt's epilogues, one operator at a time."""

from collage.backends.cublas.backend import CublasBackend

__all__ = ["CublasBackend"]
