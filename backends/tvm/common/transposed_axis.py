"""What a transposed convolution does along one axis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransposedAxis:
    """A spatial axis: element ``j`` of the data and tap ``k`` add to ``j * stride + k - padding``.

    Attributes
    ----------
    extent, result : int
        Elements of the data and of the result.
    kernel : int
        Taps.
    stride, padding : int
        As the operator has them; the padding before the data.
    """

    extent: int
    result: int
    kernel: int
    stride: int
    padding: int
