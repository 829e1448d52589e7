"""Costs of candidates as they are inside whole models, where these were timed."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collage.candidate_costs import WorkloadCosts
from collage.candidate_costs.likeness import Likeness
from collage.search.candidates import Candidate

_RATIOS = (0.6, 1.7)
"""Between these the times inside lie, over those alone, as far as a few of them may say."""

_FEWEST = 4
"""Partitions of a backend from which a part that does not grow with the time can be told."""


@dataclass(frozen=True)
class Shift:
    """What becomes of a backend's times alone, inside a model.

    Attributes
    ----------
    each_sec : float
        Added to each: handing over threads, and what is never warm.
    ratio : float
        Of the rest: caches and memory.

    Examples
    --------
    >>> Shift(each_sec=20e-6, ratio=1.5).inside(40e-6)
    8e-05
    """

    each_sec: float = 0.0
    ratio: float = 1.0

    def inside(self, alone_sec: float) -> float:
        """About what takes so long alone takes inside."""
        return self.each_sec + self.ratio * alone_sec

    @classmethod
    def fitted(cls, alone_sec: Sequence[float], inside_sec: Sequence[float]) -> Shift:
        """The shift that is least off, relative to the times alone.

        Parameters
        ----------
        alone_sec, inside_sec : sequence of float
            Of the same partitions, in the same order.

        Returns
        -------
        Shift
            A ratio alone where there are too few of them, or where the part of each call would come
            out negative; none at all where nothing is given.

        Examples
        --------
        >>> alone = [1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4]
        >>> shift = Shift.fitted(alone, [sec + 2e-5 for sec in alone])
        >>> f"{shift.each_sec:.1e} {shift.ratio:.2f}"
        '2.0e-05 1.00'
        >>> Shift.fitted([1e-3], [1.2e-3])
        Shift(each_sec=0.0, ratio=1.2)
        """
        pairs = [pair for pair in zip(alone_sec, inside_sec, strict=True) if pair[0] > 0.0]
        if not pairs:
            return cls()
        alone, inside = (np.array(values) for values in zip(*pairs, strict=True))
        low, high = _RATIOS
        whole = float(np.clip(inside.sum() / alone.sum(), low, high))
        if len(pairs) < _FEWEST:
            return cls(ratio=whole)
        # Each row is divided by its time alone, so that small partitions count as large ones do.
        rows = np.column_stack([1.0 / alone, np.ones_like(alone)])
        each_sec, ratio = (float(v) for v in np.linalg.lstsq(rows, inside / alone, rcond=None)[0])
        if each_sec < 0.0:
            return cls(ratio=whole)
        return cls(each_sec, float(np.clip(ratio, low, high)))


class InsideCosts:
    """A search's costs, corrected by what partitions took inside whole models.

    A candidate that ran inside one, or whose like did, costs what it took there, whether it was
    measured alone or not. The others cost what they take alone, shifted as those of the same
    backend were.

    Parameters
    ----------
    costs : WorkloadCosts
        Of candidates alone.
    """

    def __init__(self, costs: WorkloadCosts) -> None:
        self._costs = costs
        self._seen: defaultdict[Likeness, list[float]] = defaultdict(list)
        self._alone: dict[Likeness, tuple[str, float]] = {}
        self._likenesses: dict[Candidate, Likeness] = {}
        self._shifts: dict[str, Shift] = {}

    def note(self, inside_sec: Mapping[Candidate, float]) -> None:
        """Take note of what partitions took inside a whole model."""
        for candidate, seconds in inside_sec.items():
            likeness = self._likeness(candidate)
            self._seen[likeness].append(seconds)
            alone_sec = self._costs.known(candidate)
            if alone_sec is not None:
                self._alone[likeness] = candidate.backend, alone_sec
        by_backend: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for likeness, (backend, alone_sec) in self._alone.items():
            by_backend[backend].append((alone_sec, statistics.median(self._seen[likeness])))
        self._shifts = {
            backend: Shift.fitted(*zip(*pairs, strict=True))
            for backend, pairs in by_backend.items()
        }

    def seen_only(self) -> SeenCosts:
        """The same costs, over which nothing can be used that did not run inside a whole model."""
        return SeenCosts(self._inside)

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        unseen = [c for c in candidates if self._inside(c) is None]
        alone = dict(zip(unseen, self._costs.seconds(unseen), strict=True))
        return [self._of(c, alone.get(c)) for c in candidates]

    def known(self, candidate: Candidate) -> float | None:
        return self._of(candidate, self._costs.known(candidate))

    def lower_bound(self, candidate: Candidate) -> float:
        return self._costs.lower_bound(candidate)

    def likely_bound(self, candidate: Candidate) -> float:
        """Of what it takes inside, as its known rivals count: what is likely alone would look
        better than they do for no other reason than that it was not measured."""
        alone_sec = self._costs.likely_bound(candidate)
        found = self._of(candidate, alone_sec)
        assert found is not None
        return max(found, self.lower_bound(candidate))

    def guess(self, candidate: Candidate) -> float:
        found = self._of(candidate, self._costs.guess(candidate))
        assert found is not None
        return found

    def _of(self, candidate: Candidate, alone_sec: float | None) -> float | None:
        if candidate.inline:
            return 0.0
        inside_sec = self._inside(candidate)
        if inside_sec is not None:
            return inside_sec
        if alone_sec is None:
            return None
        return self._shifts.get(candidate.backend, Shift()).inside(alone_sec)

    def _inside(self, candidate: Candidate) -> float | None:
        seen = self._seen.get(self._likeness(candidate)) if not candidate.inline else None
        return statistics.median(seen) if seen else None

    def _likeness(self, candidate: Candidate) -> Likeness:
        if candidate not in self._likenesses:
            self._likenesses[candidate] = self._costs.likeness(candidate)
        return self._likenesses[candidate]


class SeenCosts:
    """Costs of those candidates alone that ran inside a whole model; the others cannot be used.

    Parameters
    ----------
    inside : callable
        Seconds there; None of one that did not run.
    """

    def __init__(self, inside: Callable[[Candidate], float | None]) -> None:
        self._inside = inside

    def seconds(self, candidates: Sequence[Candidate]) -> list[float | None]:
        return [self.known(candidate) for candidate in candidates]

    def known(self, candidate: Candidate) -> float:
        seconds = 0.0 if candidate.inline else self._inside(candidate)
        return math.inf if seconds is None else seconds

    def lower_bound(self, candidate: Candidate) -> float:
        return self.known(candidate)

    def likely_bound(self, candidate: Candidate) -> float:
        return self.known(candidate)

    def guess(self, candidate: Candidate) -> float:
        return self.known(candidate)
