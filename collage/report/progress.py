"""How far a search came, in a sentence: what it proved, and what cut it off."""

from __future__ import annotations

from collage.report.data import EQUAL, SearchStats
from collage.report.units import format_sec

_CUTS = {
    (True, True): "interrupted",
    (True, False): "interrupted",
    (False, True): "cut off by its budget",
    (False, False): "cut off by its limit on states",
}
"""What cuts a search off, by whether it was interrupted and whether it had a budget."""


def how_far(stats: SearchStats) -> str:
    """What a search proved; of one that was cut off, what was done of it, and the bound left.

    Returns
    -------
    str
        Empty where nothing was searched.

    Notes
    -----
    What was not measured counts with a lower bound: its multiply-adds at 1.25 times the best rate
    that anything reached. The proof stands on that, and says so. The search itself ends once
    nothing better is likely: where that needs something that was not measured to be well faster
    than what its operators took in other candidates on its backend.

    Examples
    --------
    >>> how_far(SearchStats(wall_sec=9.0))
    ''
    >>> how_far(SearchStats(candidates=310, evaluated=180, sum_sec=0.0251, bound_sec=0.0251))
    'proven: no partitioning of these 310 candidates has parts that take less than 25.1 ms ...'
    >>> print(
    ...     how_far(
    ...         SearchStats(
    ...             candidates=310, evaluated=180, sum_sec=0.0251, assumed_flops_per_sec=2.5e11
    ...         )
    ...     )
    ... )
    proven: ... sufficed, unless another computes at over 250 GFLOP/s, a quarter above the best)
    >>> print(how_far(SearchStats(candidates=9, evaluated=9, sum_sec=0.0203, bound_sec=0.0201)))
    proven: ... than 20.1 ms (the costs of 9 sufficed), those of the answer take 20.3 ms: ... a tie
    >>> stats = SearchStats(
    ...     candidates=9, evaluated=5, sum_sec=0.0203, bound_sec=0.0107, likely_sec=0.0202
    ... )
    >>> for part in how_far(stats).split("; "):
    ...     print(part)
    likely: no partitioning of these 9 candidates has parts that take less than 20.2 ms (by the ...
    proven: none less than 10.7 ms
    >>> stats = SearchStats(
    ...     candidates=310,
    ...     distinct_workloads=120,
    ...     unmeasured=40,
    ...     wall_sec=19.4,
    ...     budget_sec=20.0,
    ...     complete=False,
    ...     contenders=5,
    ...     contenders_timed=2,
    ...     sum_sec=0.0251,
    ...     bound_sec=0.0213,
    ... )
    >>> for part in how_far(stats).split("; "):
    ...     print(part)
    19.4 s of 20.0 s
    cut off by its budget: 80 of 120 workloads ... measured, 2 of 5 partitionings ...
    the parts of the search's answer take 25.1 ms, those of none less than 21.3 ms
    """
    asked = [] if stats.budget_sec is None else [_kept(stats.wall_sec, stats.budget_sec)]
    if stats.complete and stats.sum_sec is not None:
        asked += _what_none_takes(stats, stats.sum_sec)
    if stats.budget_sec is None and not stats.interrupted and stats.complete:
        return "; ".join(asked)
    known = stats.distinct_workloads - stats.unmeasured
    workloads = f"{known} of {stats.distinct_workloads} workloads that mattered so far are measured"
    timed = f"{stats.contenders_timed} of {stats.contenders} partitionings timed end to end"
    if stats.complete:
        return "; ".join([*asked, timed])
    if not stats.candidates:
        workloads = "candidates were not looked for"
    cut = _CUTS[stats.interrupted, stats.budget_sec is not None]
    parts = [*asked, f"{cut}: {workloads}, {timed}"]
    if stats.sum_sec is not None and stats.bound_sec is not None:
        parts.append(
            f"the parts of the search's answer take {format_sec(stats.sum_sec)}, "
            f"those of none less than {format_sec(stats.bound_sec)}"
        )
    return "; ".join(parts)


def _what_none_takes(stats: SearchStats, sum_sec: float) -> list[str]:
    """Of a search that came to its end: what no partitioning's parts take less than."""
    least_sec = sum_sec if stats.bound_sec is None else stats.bound_sec
    likely_sec = least_sec if stats.likely_sec is None else stats.likely_sec
    which = f"no partitioning of these {stats.candidates} candidates"
    enough = f"the costs of {stats.evaluated} sufficed"
    if format_sec(likely_sec) == format_sec(least_sec):
        return [
            f"proven: {which} has parts that take less than {format_sec(least_sec)} "
            f"({enough}{_unless(stats)}){_ties(sum_sec, least_sec)}"
        ]
    answer = "" if format_sec(sum_sec) == format_sec(likely_sec) else f", {_answers(sum_sec)}"
    rate = stats.assumed_flops_per_sec
    at_most = "" if rate is None else f" at up to {rate / 1e9:.3g} GFLOP/s"
    return [
        f"likely: {which} has parts that take less than {format_sec(likely_sec)} (by the costs of "
        f"{stats.evaluated}, unless one beats its parts){answer}",
        f"proven: none less than {format_sec(least_sec)}{at_most}",
    ]


def _answers(sum_sec: float) -> str:
    return f"those of the answer take {format_sec(sum_sec)}"


def _kept(wall_sec: float, budget_sec: float) -> str:
    if budget_sec <= 0:
        return f"{format_sec(wall_sec)}, with nothing left of the time asked for when it began"
    text = f"{format_sec(wall_sec)} of {format_sec(budget_sec)}"
    late_sec = wall_sec - budget_sec
    return f"{text}, {format_sec(late_sec)} too long" if late_sec > 0 else text


def _ties(sum_sec: float, least_sec: float) -> str:
    """What the answer's parts take where that is more than the least."""
    if format_sec(sum_sec) == format_sec(least_sec):
        return ""
    return f", {_answers(sum_sec)}: within {EQUAL:.0%} candidates of the same operators are a tie"


def _unless(stats: SearchStats) -> str:
    """What a proof assumes of candidates that were not measured."""
    rate = stats.assumed_flops_per_sec
    if rate is None or stats.evaluated >= stats.candidates:
        return ""
    return f", unless another computes at over {rate / 1e9:.3g} GFLOP/s, a quarter above the best"
