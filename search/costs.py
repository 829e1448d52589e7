"""The cost oracle a search is handed; a table of costs serves tests and what-if questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate


class CandidateCosts(Protocol):
    """Seconds per call of candidates; never asked for inline ones, which cost nothing.

    Examples
    --------
    Whatever has the five methods will do; this one knows nothing but the number of bindings:

    >>> class ByBinding:
    ...     def seconds(self, candidates):
    ...         return [1e-6 * candidate.nodes.bit_count() for candidate in candidates]
    ...
    ...     def known(self, candidate):
    ...         return None
    ...
    ...     def lower_bound(self, candidate):
    ...         return 0.0
    ...
    ...     def likely_bound(self, candidate):
    ...         return 0.0
    ...
    ...     def guess(self, candidate):
    ...         return 2e-6 * candidate.nodes.bit_count()
    >>> costs: CandidateCosts = ByBinding()
    """

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        """The costs, found by measuring if need be; ``inf`` for a candidate that cannot be used,
        None for one that there was no time to measure.

        A batch, so that the caller can build in parallel and measure equal workloads once.
        """

    def known(self, candidate: Candidate) -> float | None:
        """The cost where no measuring is needed, else None; cheap."""

    def lower_bound(self, candidate: Candidate) -> float:
        """Seconds that the candidate surely takes; cheap. 0 is always right. Asked anew each round.

        The closer, the fewer candidates are measured. A bound above the true cost makes the search
        inexact, by at most the excess summed over the best cover.
        """

    def likely_bound(self, candidate: Candidate) -> float:
        """Seconds that the candidate hardly takes less than, by what like ones took; at least the
        lower bound, and that where nothing is known of like ones. Cheap; asked anew each round.

        What it says too much makes a search with a tolerance miss what would have been better.
        """

    def guess(self, candidate: Candidate) -> float:
        """About what an unmeasured candidate takes, rather too much than too little; cheap.

        Asked only when a search is cut off, of what its best cover could not do without.
        """


class TableCosts:
    """Costs from a table, for tests and what-if questions; remembers what was asked.

    Parameters
    ----------
    table : mapping of Candidate to float
        Seconds; a candidate that is missing is invalid.
    bounds : mapping of Candidate to float, optional
        Lower bounds; 0 where missing.
    guesses : mapping of Candidate to float, optional
        Of those that there is no time for, which are unknown whatever the table says.
    likely : mapping of Candidate to float, optional
        Likely bounds; the lower bounds where missing.

    Attributes
    ----------
    asked : list of Candidate
        Every candidate evaluated, in order.
    batches : int
        How many times costs were asked for.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> cheap, missing = Candidate(0b01, tvm), Candidate(0b10, tvm)
    >>> costs = TableCosts({cheap: 2e-06})
    >>> costs.seconds([cheap, missing])
    [2e-06, inf]
    >>> costs.batches
    1
    """

    def __init__(
        self,
        table: Mapping[Candidate, float],
        bounds: Mapping[Candidate, float] | None = None,
        guesses: Mapping[Candidate, float] | None = None,
        likely: Mapping[Candidate, float] | None = None,
    ) -> None:
        self._table = table
        self._bounds = bounds or {}
        self._likely = likely or {}
        self._guesses = guesses or {}
        self._known: dict[Candidate, float] = {}
        self.asked: list[Candidate] = []
        self.batches = 0

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        self.batches += 1
        self.asked += candidates
        for candidate in candidates:
            if candidate not in self._guesses:
                self._known[candidate] = self._table.get(candidate, math.inf)
        return [self._known.get(candidate) for candidate in candidates]

    def known(self, candidate: Candidate) -> float | None:
        return self._known.get(candidate)

    def lower_bound(self, candidate: Candidate) -> float:
        return self._bounds.get(candidate, 0.0)

    def likely_bound(self, candidate: Candidate) -> float:
        return self._likely.get(candidate, self.lower_bound(candidate))

    def guess(self, candidate: Candidate) -> float:
        return self._guesses.get(candidate, math.inf)


def checked_seconds(costs: CandidateCosts, candidates: Sequence[Candidate]) -> list[float | None]:
    """The costs of candidates, checked: a cost that would spoil a search is refused.

    Parameters
    ----------
    costs : CandidateCosts
        The oracle that is asked.
    candidates : sequence of Candidate
        Asked for in one batch; none of them inline.

    Returns
    -------
    list of float or None
        Seconds per call, in the order of ``candidates``; None where there was no time.

    Raises
    ------
    SearchError
        For a cost that is negative or not a number, or the wrong number of costs.
    """
    found = costs.seconds(candidates)
    if len(found) != len(candidates):
        raise SearchError(
            f"{len(candidates)} costs were asked for, {len(found)} came", value=len(found)
        )
    for value in found:
        if value is not None and (math.isnan(value) or value < 0):
            raise SearchError(f"a candidate's cost is {value}", value=value)
    return found
