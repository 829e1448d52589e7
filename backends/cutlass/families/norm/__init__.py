"""Layer norm and root-mean-square norm, alone or of a sum, by kernels of our own."""

from collage.backends.cutlass.families.norm.family import NormFamily

__all__ = ["NormFamily"]
