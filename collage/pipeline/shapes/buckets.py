"""The sets of shapes that are compiled, of what the user wrote."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from collage.backends.contract.errors import ShapeError

Extent = int | str | Sequence[int] | Mapping[int, float]
"""A number; ``"1:8"``, buckets between two numbers; ``"1|4|8"`` or a sequence, buckets as they are;
``{1: 0.7, 8: 0.3}`` or ``"1*0.7|8*0.3"``, how often which extent comes: the buckets are chosen.
What is written alike varies together; a name after ``@`` tells apart: ``"1:8@rows"``."""

Given = Mapping[str, Extent | Sequence[Extent]]
"""By input name, an :data:`Extent` for each axis; by the name of an open dimension, its own."""

MOST_BUCKETS = 64
"""Each is compiled and measured like a model of its own."""

_TEXT = re.compile(r"(?P<extents>\d+(:\d+|(\|\d+)*))(@(?P<name>\w+))?")
_SHARE = r"\d+\*(\d+\.?\d*|\.\d+)"
_SHARES = re.compile(rf"(?P<extents>{_SHARE}(\|{_SHARE})*)(@(?P<name>\w+))?")


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
    shares : mapping of int to mapping of int to float
        By index in ``varying``, how often each extent comes, where the user has said so.

    Examples
    --------
    >>> buckets = Buckets(((1, 4),), {"x": ((0,), 8)})
    >>> [bucket.shapes for bucket in buckets.buckets], buckets.at([2]).shapes
    ([{'x': (1, 8)}, {'x': (4, 8)}], {'x': (2, 8)})
    """

    varying: tuple[tuple[int, ...], ...]
    given: Mapping[str, tuple[int | tuple[int], ...]]
    shares: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    def between(self, index: int) -> list[int]:
        """The extents of a dimension that calls may have and no bucket has."""
        extents = self.varying[index]
        comes = self.shares.get(index, range(extents[0], extents[-1]))
        return [size for size in comes if size not in extents]

    def narrowed(self, index: int, extents: Sequence[int]) -> Buckets:
        """The same with fewer buckets along a dimension.

        Parameters
        ----------
        index : int
            Of the dimension, in ``varying``.
        extents : sequence of int
            Of its buckets, ascending.

        Returns
        -------
        Buckets
            How often its extents come stays known.
        """
        varying = list(self.varying)
        varying[index] = tuple(extents)
        return replace(self, varying=tuple(varying))

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


def buckets_of(shapes: Given) -> Buckets:
    """The buckets that shapes stand for; one where none varies.

    Parameters
    ----------
    shapes : mapping of str to sequence
        As :data:`Given` says.

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

    Extents that come so and so often, of which :func:`.expected.chosen` makes buckets:

    >>> buckets_of({"x": [{8: 1, 1: 3}, 4]}).shares
    {0: {1: 0.75, 8: 0.25}}

    A dimension by its name:

    >>> [b.shapes for b in buckets_of({"batch": "1|4", "seq": 128}).buckets]
    [{'batch': (1,), 'seq': (128,)}, {'batch': (4,), 'seq': (128,)}]
    """
    varying: dict[_Dimension, int] = {}
    given: dict[str, tuple[int | tuple[int], ...]] = {}
    for name, given_shape in shapes.items():
        alone = isinstance(given_shape, int | str | Mapping)
        shape = cast(Sequence[Extent], (given_shape,) if alone else given_shape)
        read: list[int | tuple[int]] = []
        for extent in shape:
            dimension = _dimension(name, extent)
            if len(dimension.extents) == 1:
                read.append(dimension.extents[0])
            else:
                read.append((varying.setdefault(dimension, len(varying)),))
        given[name] = tuple(read)
    shares = {
        index: dict(zip(dimension.extents, dimension.shares, strict=True))
        for dimension, index in varying.items()
        if dimension.shares
    }
    if len(shares) > 1:
        raise ShapeError(
            "how often which extent comes is known of one dimension at the most; give buckets for "
            "the others, for example 1|8|64",
            value=list(shares.values()),
        )
    found = Buckets(tuple(dimension.extents for dimension in varying), given, shares)
    most = found
    for index in shares:
        most = most.narrowed(index, found.varying[index][-1:])
    count = len(most.buckets)
    if count > MOST_BUCKETS:
        raise ShapeError(
            f"the shapes stand for {count} buckets, each of which is compiled and measured by "
            f"itself; give at most {MOST_BUCKETS}, for example x=1|8|64 in place of x=1:64",
            value=count,
        )
    return found


@dataclass(frozen=True)
class _Dimension:
    """What the user wrote of one axis: extents, ascending, the dimension's name, and how often each
    extent comes, where that is said."""

    extents: tuple[int, ...]
    label: str = ""
    shares: tuple[float, ...] = ()


def _dimension(name: str, extent: Extent) -> _Dimension:
    label = ""
    if isinstance(extent, str):
        text = extent.replace(" ", "")
        match = _TEXT.fullmatch(text) or _SHARES.fullmatch(text)
        if match is None:
            raise _no_extent(name, extent)
        label = match["name"] or ""
        if "*" in text:
            pairs = [part.split("*") for part in match["extents"].split("|")]
            return _shared(name, extent, [(int(e), float(share)) for e, share in pairs], label)
        text = match["extents"]
        if text.isdigit():
            # One extent may be 0, as it may where it is written as a number.
            return _Dimension((int(text),), label)
        found = _between(*map(int, text.split(":"))) if ":" in text else map(int, text.split("|"))
        extents = tuple(dict.fromkeys(found))
    elif isinstance(extent, Mapping):
        return _shared(name, extent, list(extent.items()), label)
    elif isinstance(extent, list | tuple):
        extents = tuple(dict.fromkeys(extent))
    else:
        # Whatever is wrong with a number, the importer says so.
        return _Dimension((cast(int, extent),))
    _require_extents(name, extent, extents)
    return _Dimension(tuple(sorted(extents)), label)


def _shared(
    name: str, extent: Extent, pairs: Sequence[tuple[int, float]], label: str
) -> _Dimension:
    """Extents with how often each comes, as shares of all calls."""
    _require_extents(name, extent, [size for size, _ in pairs])
    for size, share in pairs:
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or not 0 < share < math.inf:
            raise ShapeError(
                f"input '{name}': {size} comes with weight {share!r}; write a number above 0",
                value=share,
            )
    total: dict[int, float] = {}
    for size, share in sorted(pairs):
        total[size] = total.get(size, 0.0) + share
    whole = sum(total.values())
    return _Dimension(tuple(total), label, tuple(share / whole for share in total.values()))


def _require_extents(name: str, extent: Extent, extents: Sequence[int]) -> None:
    if not extents or any(isinstance(e, bool) or not isinstance(e, int) for e in extents):
        raise _no_extent(name, extent)
    if min(extents) < 1:
        raise ShapeError(f"input '{name}': '{extent}': extents begin at 1", value=extent)


def _between(low: int, high: int) -> list[int]:
    if low > high:
        return []
    powers = itertools.takewhile(lambda power: power < high, (1 << n for n in itertools.count()))
    return [low, *(power for power in powers if power > low), high]


def _no_extent(name: str, extent: Extent) -> ShapeError:
    return ShapeError(
        f"input '{name}': '{extent}' is no extent; write a number, a range as 1:8, buckets as "
        "1|4|8, or how often each comes as 1*0.7|8*0.3",
        value=extent,
    )
