"""What moves elements between the lanes of vectors: constant shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T


def transposed(rows: Sequence[Any]) -> list[Any]:
    """The columns of a square tile as vectors, within the builder that is open.

    Parameters
    ----------
    rows : sequence of expression
        As many vectors as each has lanes, a power of two of them.

    Returns
    -------
    list of expression
        Pairs of rows exchange halves, then quarters, and so on: bit after bit of the two places.
    """
    side, vectors, bit = len(rows), list(rows), len(rows) // 2
    while bit:
        for number in range(side):
            if number & bit:
                continue
            pair = [vectors[number], vectors[number | bit]]
            low = [lane if not lane & bit else side + (lane ^ bit) for lane in range(side)]
            high = [lane ^ bit if not lane & bit else side + lane for lane in range(side)]
            vectors[number], vectors[number | bit] = shuffled(pair, low), shuffled(pair, high)
        bit //= 2
    return vectors


def shuffled(vectors: Sequence[Any], lanes: Sequence[int]) -> Any:
    """Chosen lanes of vectors as a bound vector, within the builder that is open.

    Parameters
    ----------
    vectors : sequence of expression
        Equally wide.
    lanes : sequence of int
        Which ones, counted through all of the vectors.

    Returns
    -------
    expression
        The variable that holds it.
    """
    chosen = [tirx.const(lane, "int32") for lane in lanes]
    return T.bind(tirx.Shuffle(list(vectors), chosen))
