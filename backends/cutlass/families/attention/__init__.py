"""Attention as one kernel: products, softmax and mask without the matrix between them."""

from collage.backends.cutlass.families.attention.family import AttentionFamily

__all__ = ["AttentionFamily"]
