"""Convolutions of channels-last images, with bias, activations and residual.

Of one tap they are products, and run as :mod:`~collage.backends.cutlass.families.gemm` has them.
"""

from collage.backends.cutlass.families.conv2d.family import Conv2dFamily

__all__ = ["Conv2dFamily"]
