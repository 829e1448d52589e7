"""Attributes of an ``openblas`` target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenBLASOptions:
    """What a user may set on an ``openblas`` target.

    Attributes
    ----------
    epilogues : bool
        Offer matrix products with their bias and activation; otherwise bare products only.
    permutations : bool
        Offer matrix products together with the ``permute_dims`` on their operands or result,
        which BLAS absorbs as transpose flags and leading dimensions.
    transpose_vector_weights : bool
        Store constant weights transposed where the other operand is a single row: OpenBLAS then
        reads them in rows that its threads share out, 1.3 to 2 times faster than columns.
    """

    epilogues: bool = True
    permutations: bool = True
    transpose_vector_weights: bool = True
