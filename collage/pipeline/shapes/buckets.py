"""The sets of shapes that are compiled, of what the user wrote."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from collage.backends.contract.errors import ShapeError

Extent = int | str | Sequence[int]
"""A number; ``"1:8"``, buckets between two numbers; ``"1|4|8"`` or a sequence, buckets as they are.
What is written alike varies together; a name after ``@`` tells apart: ``"1:8@rows"``."""

MOST_BUCKETS = 64
"""Each is compiled and measured like a model of its own."""

_TEXT = re.compile(r"(?P<extents>\d+(:\d+|(\|\d+)*))(@(?P<name>\w+))?")


@dataclass(frozen=True)
class Bucket:
    """One set of shapes.

    Attributes
    ----------
    extents : tuple of int
        Of every dimension that varies.
    shapes : dict of str to tuple of int
        Of the inputs that the user gave shapes for.

    Examples
    --------
    >>> [bucket.shapes for bucket in buckets_of({"x": ["1:2", 3]}).buckets]
    [{'x': (1, 3)}, {'x': (2, 3)}]
    """

    extents: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Buckets:
    """All of them.

    Attributes
    ----------
    varying : tuple of tuple of int
        The extents of each dimension that varies, ascending.
    given : mapping of str to sequence
        Each input's shape, extents for numbers and the index in ``varying``, as ``(index,)``, for
        what varies.

    Examples
    --------
    >>> buckets = Buckets(((1, 4),), {"x": ((0,), 8)})
    >>> [bucket.shapes for bucket in buckets.buckets], buckets.at([2]).shapes
    ([{'x': (1, 8)}, {'x': (4, 8)}], {'x': (2, 8)})
    """

    varying: tuple[tuple[int, ...], ...]
    given: Mapping[str, tuple[int | tuple[int], ...]]

    @property
    def buckets(self) -> list[Bucket]:
        """Every combination, the largest last."""
        return [self.at(extents) for extents in itertools.product(*self.varying)]

    def at(self, extents: Sequence[int]) -> Bucket:
        """The shapes with other extents."""
        shapes = {
            name: tuple(extents[e[0]] if isinstance(e, tuple) else e for e in shape)
            for name, shape in self.given.items()
        }
        return Bucket(tuple(extents), shapes)


def buckets_of(shapes: Mapping[str, Sequence[Extent]]) -> Buckets:
    """The buckets that shapes stand for; one where none varies.

    Parameters
    ----------
    shapes : mapping of str to sequence
        By input name, an :data:`Extent` for each axis.

    Raises
    ------
    ShapeError
        For what is no extent, extents below 1, and more buckets than anybody could want.

    Examples
    --------
    Without buckets of the user's they are the powers of two, and the ends:

    >>> buckets_of({"x": ["3:20", 4]}).varying
    ((3, 4, 8, 16, 20),)

    What is written alike varies together:

    >>> [b.shapes for b in buckets_of({"x": [(1, 4), 8], "y": [(1, 4)]}).buckets]
    [{'x': (1, 8), 'y': (1,)}, {'x': (4, 8), 'y': (4,)}]
    >>> len(buckets_of({"x": ["1|4@rows", "1|4@columns"]}).buckets)
    4
    """
    varying: dict[tuple[tuple[int, ...], str], int] = {}
    given: dict[str, tuple[int | tuple[int], ...]] = {}
    for name, shape in shapes.items():
        read: list[int | tuple[int]] = []
        for extent in shape:
            extents, label = _extents(name, extent)
            if len(extents) == 1:
                read.append(extents[0])
            else:
                read.append((varying.setdefault((extents, label), len(varying)),))
        given[name] = tuple(read)
    found = Buckets(tuple(extents for extents, _ in varying), given)
    count = len(found.buckets)
    if count > MOST_BUCKETS:
        raise ShapeError(
            f"the shapes stand for {count} buckets, each of which is compiled and measured by "
            f"itself; give at most {MOST_BUCKETS}, for example x=1|8|64 in place of x=1:64",
            value=count,
        )
    return found


def _extents(name: str, extent: Extent) -> tuple[tuple[int, ...], str]:
    """The extents that are meant, ascending, and the dimension's name."""
    if isinstance(extent, str):
        match = _TEXT.fullmatch(extent.replace(" ", ""))
        if match is None:
            raise _no_extent(name, extent)
        text = match["extents"]
        found = _between(*map(int, text.split(":"))) if ":" in text else map(int, text.split("|"))
        extents, label = tuple(dict.fromkeys(found)), match["name"] or ""
    elif isinstance(extent, list | tuple):
        extents, label = tuple(dict.fromkeys(extent)), ""
    else:
        # Whatever is wrong with a number, the importer says so.
        return (cast(int, extent),), ""
    if not extents or any(isinstance(e, bool) or not isinstance(e, int) for e in extents):
        raise _no_extent(name, extent)
    if min(extents) < 1:
        raise ShapeError(f"input '{name}': '{extent}': extents begin at 1", value=extent)
    return tuple(sorted(extents)), label


def _between(low: int, high: int) -> list[int]:
    if low > high:
        return []
    powers = itertools.takewhile(lambda power: power < high, (1 << n for n in itertools.count()))
    return [low, *(power for power in powers if power > low), high]


def _no_extent(name: str, extent: Extent) -> ShapeError:
    return ShapeError(
        f"input '{name}': '{extent}' is no extent; write a number, a range as 1:8, or buckets as "
        "1|4|8",
        value=extent,
    )
