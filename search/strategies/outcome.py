"""How far a search is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass

from collage.search.partitioning import Partitioning


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is, after each round.

    Attributes
    ----------
    rounds : int
        Shortest paths found so far.
    evaluated : int
        Candidates evaluated so far.
    pending : int
        Unmeasured candidates on the best path.
    optimistic_sec : float
        Cost of the best path; rises towards the optimum.

    Examples
    --------
    >>> progress = SearchProgress(rounds=2, evaluated=9, pending=1, optimistic_sec=0.0031)
    >>> f"{progress.pending} of the best path are not yet measured"
    '1 of the best path are not yet measured'
    """

    rounds: int
    evaluated: int
    pending: int
    optimistic_sec: float


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    partitioning : Partitioning or None
        None only when it was stopped, and what was measured and the seeds cover nothing.
    complete : bool
        Whether the partitioning is optimal over the candidates, within the tolerance: proven
        without one, and with one by likely bounds.
    optimistic_sec : float
        No cover can cost less than this; 0 when nobody knows. Of a complete search without a
        tolerance, what the partitioning costs.
    likely_sec : float
        No cover is likely to cost less; the same without a tolerance.
    evaluated : int
        How many candidates the search had evaluated.
    rounds : int
        Shortest paths found.
    expanded : int
        States visited, all rounds together.

    Examples
    --------
    >>> stopped = SearchResult(None, False, 0.0, 0.0, evaluated=0, rounds=1, expanded=3)
    >>> stopped.partitioning is None and not stopped.complete
    True
    """

    partitioning: Partitioning | None
    complete: bool
    optimistic_sec: float
    likely_sec: float
    evaluated: int
    rounds: int
    expanded: int
