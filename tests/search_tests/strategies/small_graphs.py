"""Graphs with tables of costs, for searches to be tried on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.testing.search_contract import (
    table_of,
)

Instance = tuple[DataflowGraph, dict[Candidate, float]]


def chain(size: int, widths: Sequence[int], seed: int) -> Instance:
    """A chain with a candidate for each interval of certain widths."""
    rng = random.Random(seed)
    table = {}
    for width in widths:
        for first in range(size - width + 1):
            nodes = tuple(range(first, first + width))
            table[nodes, 1 if width > 1 else 0] = width * rng.uniform(0.9, 1.3)
    return DataflowGraph.from_uses([[i - 1] if i else [] for i in range(size)]), table_of(table)
