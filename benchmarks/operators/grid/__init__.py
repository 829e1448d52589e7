"""A grid of shapes for every operator that an importer can bring, by family."""

from __future__ import annotations

from benchmarks.operators.case import OperatorCase
from benchmarks.operators.grid import (
    convolution,
    indexing,
    layers,
    movement,
    normalization,
    pointwise,
    pooling,
    products,
    reduction,
    sampling,
    selection,
    special,
    spectral,
)

_FILES = (
    *(convolution, products, normalization, reduction, pointwise, pooling, movement),
    *(special, selection, spectral, sampling, layers, indexing),
)


def all_cases() -> list[OperatorCase]:
    """Every case of the grid, once."""
    cases = [case for file in _FILES for case in file.cases()]
    assert len({case.key for case in cases}) == len(cases), "two cases have one name"
    return cases
