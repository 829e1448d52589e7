"""Buckets chosen by what a call is expected to take, of extents that come so and so often.

A call is padded up to the next bucket and takes what that takes. Each bucket is searched, compiled
and kept by itself, so there are few. What a call takes is measured for a few extents and taken to
be linear between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

MOST_MEASURED = 5
"""Extents that are measured before the buckets are chosen."""


def measured_extents(extents: Sequence[int], most: int = MOST_MEASURED) -> list[int]:
    """Those whose time is measured: both ends, and what lies evenly between them by proportion.

    Parameters
    ----------
    extents : sequence of int
        Ascending.
    most : int
        How many at the most.

    Returns
    -------
    list of int
        Ascending.

    Examples
    --------
    >>> measured_extents([1, 2, 3, 4, 30, 60, 64, 100])
    [1, 3, 4, 30, 100]
    """
    wanted = np.geomspace(extents[0], extents[-1], min(most, len(extents)))
    return sorted({min(extents, key=lambda extent: abs(np.log(extent / at))) for at in wanted})


def call_times(measured: Mapping[int, float], extents: Sequence[int]) -> dict[int, float]:
    """What a call takes at each extent, from some that were measured.

    Parameters
    ----------
    measured : mapping of int to float
        Seconds, both ends of the extents among them.
    extents : sequence of int
        Ascending.

    Returns
    -------
    dict of int to float
        Seconds; more never takes less.

    Examples
    --------
    >>> call_times({1: 1.0, 5: 3.0}, [1, 2, 5])
    {1: 1.0, 2: 1.5, 5: 3.0}
    """
    places = sorted(measured)
    rising = np.maximum.accumulate([measured[place] for place in places])
    return {extent: float(np.interp(extent, places, rising)) for extent in extents}


def chosen(
    shares: Mapping[int, float], call_sec: Mapping[int, float], most: int
) -> tuple[tuple[int, ...], float]:
    """The buckets with which a call is expected to take least.

    Parameters
    ----------
    shares : mapping of int to float
        How often each extent comes.
    call_sec : mapping of int to float
        What a call takes at each extent, seconds.
    most : int
        How many buckets at the most, one or more.

    Returns
    -------
    tuple of tuple of int and float
        The extents, ascending, the largest that comes among them; and the expected time of a call,
        seconds, weighted by the shares. Of choices that take equally long, one of fewest buckets.

    Notes
    -----
    By dynamic programming over the extents in order, O(most n^2).

    Examples
    --------
    >>> shares = {1: 0.5, 2: 0.3, 8: 0.1, 9: 0.1}
    >>> extents, call_sec = chosen(shares, {extent: float(extent) for extent in shares}, most=3)
    >>> extents, round(call_sec, 6)
    ((1, 2, 9), 2.9)
    """
    extents = sorted(shares)
    below = np.concatenate([[0.0], np.cumsum([shares[extent] for extent in extents])])
    # By the number of buckets: the least that calls up to an extent take, itself a bucket, and the
    # bucket before it.
    least = [[float(below[i + 1]) * call_sec[extent] for i, extent in enumerate(extents)]]
    before: list[list[int]] = [[-1] * len(extents)]
    for _ in range(1, min(most, len(extents))):
        row, last = [], []
        for i, extent in enumerate(extents):
            options = [
                (least[-1][j] + float(below[i + 1] - below[j + 1]) * call_sec[extent], j)
                for j in range(i)
            ]
            best = min(options, default=(np.inf, -1))
            row.append(best[0])
            last.append(best[1])
        least.append(row)
        before.append(last)
    count = min(range(len(least)), key=lambda n: (least[n][-1], n))
    found, place = [], len(extents) - 1
    for number in range(count, -1, -1):
        found.append(extents[place])
        place = before[number][place]
    return tuple(reversed(found)), least[count][-1]
