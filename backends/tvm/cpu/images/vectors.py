"""Rows of tensors by whole vectors, within the builder that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T


def tiled(extent: int, lanes: int, most: int, body: Callable[[Any, int, int], object]) -> None:
    """Vectors over an extent, several at once; the last ones begin where they still end inside.

    Parameters
    ----------
    extent : int
        Elements, some of which may be computed twice.
    lanes : int
        Of a vector; fewer where there are not as many elements.
    most : int
        Vectors at once.
    body : callable
        Is given the first element, a vector's lanes and the number of vectors.
    """
    side = 1 << (min(lanes, extent).bit_length() - 1)
    count = max(1, min(most, extent // side))
    tile = side * count
    if extent == tile:
        body(0, side, count)
        return
    with T.serial(0, -(-extent // tile)) as number:
        begin = number * tile
        body(T.bind(tirx.min(begin, extent - tile) if extent % tile else begin), side, count)


def load(buffer: Any, place: Any, side: int) -> Any:
    """Neighbours from a place on.

    Parameters
    ----------
    buffer : tirx.Buffer
        Of one axis.
    place : expression
        The first one's.
    side : int
        How many.

    Returns
    -------
    expression
        A vector, or one element.
    """
    return tirx.BufferLoad(buffer, [_at(place, side)])


def store(buffer: Any, value: Any, place: Any, side: int) -> None:
    """Put neighbours from a place on.

    Parameters
    ----------
    buffer : tirx.Buffer
        Of one axis.
    value : expression
        A vector, or one element.
    place : expression
        The first one's.
    side : int
        How many.
    """
    T.buffer_store(buffer, value, [_at(place, side)])


def _at(place: Any, side: int) -> Any:
    return tirx.Ramp(place, 1, side) if side > 1 else place
