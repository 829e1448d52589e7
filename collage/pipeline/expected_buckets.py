"""The buckets for extents that come so and so often: proven, measured, chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from collage.backends.contract.errors import ShapeError
from collage.cost.progress import ProgressEvent
from collage.pipeline.limits import Budget
from collage.pipeline.one_function import Search
from collage.pipeline.shapes.bucketed import Bucketed
from collage.pipeline.shapes.buckets import MOST_BUCKETS, Buckets
from collage.pipeline.shapes.expected import call_times, chosen, measured_extents

_MEASURING_SHARE = 0.3
"""Of the time that is left, to find out what calls take."""

ImportBuckets = Callable[[Buckets], list[Bucketed]]


def expected_buckets(
    buckets: Buckets, most: int, importing: ImportBuckets, search: Search, budget: Budget
) -> tuple[Buckets, str]:
    """As few buckets as asked for, with which a call is expected to take least.

    Parameters
    ----------
    buckets : Buckets
        With shares for one of the dimensions that vary: an extent a bucket.
    most : int
        How many there may be along it, two or more.
    importing : callable
        Imports the model for some buckets.
    search : Search
        How the model will be searched; what is timed here are its greedy answers.
    budget : Budget
        Of the whole call.

    Returns
    -------
    tuple of Buckets and str
        Those, and what to tell the user of them.

    Raises
    ------
    ShapeError
        When padding is not proven and the extents are too many for a bucket each.
    """
    ((index, shares),) = buckets.shares.items()
    extents = buckets.varying[index]
    if len(extents) <= most:
        return buckets, ""
    progress = search.session.progress
    reason = _unproven(importing(buckets.narrowed(index, (extents[0], extents[-1]))), extents)
    if reason:
        count = len(buckets.buckets)
        if count > MOST_BUCKETS:
            raise ShapeError(
                f"{len(extents)} extents would each need a bucket, since none may be padded to the "
                f"next ({reason}), and {count} buckets are more than {MOST_BUCKETS}; name fewer",
                value=extents,
            )
        return buckets, f"each of the {len(extents)} extents has a bucket of its own: {reason}"
    measured: dict[int, float] = {}
    places = measured_extents(extents)
    for number, extent in enumerate(places):
        progress(ProgressEvent("buckets", number, len(places), f"what a call at {extent} takes"))
        part = budget.part(_MEASURING_SHARE / (len(places) - number))
        measured[extent] = _call_sec(importing(buckets.narrowed(index, (extent,))), search, part)
    call_sec = call_times(measured, extents)
    picked, expected_sec = chosen(shares, call_sec, most)
    # One alone would take no other extents: with the smallest beside it, it is padded to.
    found = picked if len(picked) > 1 else (extents[0], extents[-1])
    progress(ProgressEvent("buckets", len(places), len(places), f"buckets {_listed(found)}"))
    each = sum(share * call_sec[extent] for extent, share in shares.items())
    return buckets.narrowed(index, found), (
        f"buckets {_listed(found)} of {len(extents)} extents: a call is expected to take "
        f"{expected_sec * 1e3:.3g} ms, {each * 1e3:.3g} with a bucket for each, "
        f"{call_sec[extents[-1]] * 1e3:.3g} with the largest alone (greedy answers at "
        f"{_listed(places)})"
    )


def _listed(extents: Sequence[int]) -> str:
    return ", ".join(map(str, extents))


def _unproven(functions: Sequence[Bucketed], extents: Sequence[int]) -> str:
    """Why not all extents may be padded to the largest; nothing where they may."""
    for function in functions:
        if len(function.variants) > 1:
            padding = function.padding
            if padding is None or not set(extents[1:-1]) <= set(padding.sizes):
                return function.remark or f"'{function.name}' is padded along another dimension"
    return ""


def _call_sec(functions: Sequence[Bucketed], search: Search, budget: Budget) -> float:
    """What one call of each function takes, greedily partitioned."""
    variants = [variant for function in functions for variant in function.variants]
    greedy = replace(
        search,
        strategy="greedy",
        refine_trials=0,
        memory_limit_bytes=None,
        graphs=[variant.graph for variant in variants],
    )
    total = 0.0
    for number, variant in enumerate(variants):
        part = budget.part(1 / (len(variants) - number))
        greedy.costing.begin(part)
        report = greedy.best_of(variant, part, None).report
        total += next(row.median_sec or 0.0 for row in report.end_to_end if row.chosen)
    return total
