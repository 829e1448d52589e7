"""Matrix products, dense and batched, with bias, activation and residual, by CUTLASS's templates.

``patterns`` says what is taken, ``problem`` how operands lie in memory, ``configurations`` which
tiles to try, ``render`` what to compile. Convolutions that are products are rendered here too.
"""

from collage.backends.cutlass.families.gemm.family import MatmulFamily

__all__ = ["MatmulFamily"]
