"""Whether the times of several places compare: decided from times of the reference set alone.

At first each place is compared with the first one, in rounds that all of them play at once: only
ratios within a round count, so whatever befalls all of them does no harm. From then on each is
compared with what it took itself at first, and that with the others: one that has become slower
than the rest is left out, and what it timed since it was last found to be good is timed again.
Where all have become slower alike nobody is at fault.

No device and no thread; the statistics are those of :mod:`collage.cost.contest`.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collage.cost.contest import Tolerance, median_interval
from collage.cost.database.record import RecordKey
from collage.cost.measure.places.reference_set import Times

MOST_ROUNDS = 15
"""After which the median decides about a place that was not shown to be like the others."""

_CONFIDENCE = 0.9
_FAILURES = 3
"""Rounds of one check in which a place may fail, less one: a process can be killed by accident."""

_SHARE = 0.02
"""Of the time, for all checks but the first."""
_SELDOM_SEC = 30.0
"""However little a check takes, the next one is not earlier."""


@dataclass(frozen=True)
class Finding:
    """What a round has shown.

    Attributes
    ----------
    left_out : mapping of str to str
        Places that are not like the others, and how they differ.
    again : bool
        Whether another round is needed to know.
    shared_doubt : str
        Why all places should have been left out; the first of them then stays. Usually empty.

    Examples
    --------
    >>> Finding({}, again=True).left_out
    {}
    """

    left_out: Mapping[str, str]
    again: bool
    shared_doubt: str = ""


class Calibration:
    """Compares places, check after check.

    Parameters
    ----------
    bound : float
        How far apart times may lie, as a share.
    clock : callable
        Seconds.

    Examples
    --------
    Of three places the last takes a quarter longer, which five rounds are enough to show:

    >>> calibration = Calibration(bound=0.03)
    >>> for _ in range(5):
    ...     rounds = {name: {"memory": sec} for name, sec in [("a", 8.0), ("b", 8.1), ("c", 10.0)]}
    ...     finding = calibration.add(rounds)
    >>> finding.left_out
    {'c': 'takes 1.250 times as long as a for memory (1.250 to 1.250 in 5 rounds)'}
    """

    def __init__(self, bound: float, clock: Callable[[], float] = time.monotonic) -> None:
        # A call of nothing differs by more than that share from one moment to the next.
        self._tolerance = Tolerance(relative=bound)
        self._clock = clock
        self._rounds: list[dict[str, Times]] = []
        self._began = clock()
        self._due = -float("inf")
        self._usual: dict[str, dict[str, float]] = {}
        self._since_good: dict[str, list[RecordKey]] = {}
        self._doubtful: list[RecordKey] = []
        self._lock = threading.Lock()

    def is_due(self, places: Sequence[str]) -> bool:
        """Whether places must be compared before they time anything more."""
        if len(places) < 2:
            return False
        return self._clock() >= self._due or any(place not in self._usual for place in places)

    def begin(self) -> None:
        """Forget an unfinished check."""
        self._rounds = []
        self._began = self._clock()

    def add(self, times: Mapping[str, Times]) -> Finding:
        """Decide from one more round.

        Parameters
        ----------
        times : mapping of str to times
            What every place that is left took, the first one first.
        """
        self._rounds.append(dict(times))
        failures = {place: text for place in times if (text := self._failure(place))}
        sound = [place for place in times if place not in failures]
        reasons: dict[str, str | None] = dict(failures)
        for place in sound:
            reasons[place] = self._judge(place, sound)
        if None in reasons.values() and len(self._rounds) < MOST_ROUNDS:
            return Finding({}, again=True)
        unknown = "could not be compared with the others"
        out = {
            place: unknown if reason is None else reason
            for place, reason in reasons.items()
            if reason != ""
        }
        doubt = ""
        if len(out) == len(times):
            # Somebody has to time, and one place is like itself.
            first = next(iter(times))
            doubt = f"{first} {out.pop(first)}"
        self._end(times, out)
        return Finding(out, again=False, shared_doubt=doubt)

    def timed(self, place: str, key: RecordKey) -> None:
        """Take down that a place has timed something.

        Parameters
        ----------
        place : str
            Its name.
        key : RecordKey
            Of the record.
        """
        with self._lock:
            self._since_good.setdefault(place, []).append(key)

    def forget(self, place: str) -> None:
        """Compare a place from the beginning when it is named again."""
        self._usual.pop(place, None)
        with self._lock:
            self._since_good.pop(place, None)

    def take_doubtful(self) -> list[RecordKey]:
        """What places that were left out had timed since they were last found to be good."""
        with self._lock:
            doubtful, self._doubtful = self._doubtful, []
        return doubtful

    def _end(self, times: Mapping[str, Times], out: Mapping[str, str]) -> None:
        for place in times:
            if place not in out and place not in self._usual:
                self._usual[place] = self._medians(place)
        with self._lock:
            for place in times:
                since = self._since_good.pop(place, [])
                if place in out:
                    self._doubtful += since
        took = self._clock() - self._began
        self._due = self._clock() + max(_SELDOM_SEC, took / _SHARE)
        self._rounds = []

    def _medians(self, place: str) -> dict[str, float]:
        columns: dict[str, list[float]] = {}
        for one in self._rounds:
            for workload, sec in one.get(place, {}).items():
                if isinstance(sec, float):
                    columns.setdefault(workload, []).append(sec)
        return {workload: statistics.median(column) for workload, column in columns.items()}

    def _failure(self, place: str) -> str:
        """Why a place cannot be compared, if it fails again and again."""
        failures = [
            reason
            for one in self._rounds
            if (reason := next((t for t in one.get(place, {}).values() if isinstance(t, str)), ""))
        ]
        return f"cannot be compared: {failures[-1]}" if len(failures) >= _FAILURES else ""

    def _judge(self, place: str, places: Sequence[str]) -> str | None:
        """How a place differs; empty when it does not, None when that is not known yet."""
        workloads = dict.fromkeys(w for one in self._rounds for w in one.get(place, {}))
        said = [self._compare(place, places, workload) for workload in workloads]
        return next((one for one in said if one), None if None in said else "")

    def _compare(self, place: str, places: Sequence[str], workload: str) -> str | None:
        ratios = [
            ratio
            for one in self._rounds
            if (ratio := self._ratio(one, place, places, workload)) is not None
        ]
        known = place in self._usual
        if not ratios:
            return None
        typical = statistics.median(
            sec
            for one in self._rounds
            if isinstance(sec := one.get(place, {}).get(workload), float)
        )
        high = self._tolerance.ratio(typical / max(1.0, statistics.median(ratios)))
        if known and len(self._rounds) == 1 and 1 / high <= ratios[0] <= high:
            return ""  # Nothing has changed since it was looked at closely.
        interval = median_interval(ratios, _CONFIDENCE)
        if interval.within(1 / high, high):
            return ""
        if interval.low <= high and interval.high >= 1 / high:
            if len(ratios) < MOST_ROUNDS:
                return None
            if 1 / high <= interval.estimate <= high:
                return ""  # As much as one device differs from itself on a machine that is noisy.
        text = f"({interval.low:.3f} to {interval.high:.3f} in {interval.n} rounds)"
        if known:
            return f"has become {interval.estimate:.3f} times as slow for {workload} {text}"
        than = places[0]
        return f"takes {interval.estimate:.3f} times as long as {than} for {workload} {text}"

    def _ratio(
        self, times: Mapping[str, Times], place: str, places: Sequence[str], workload: str
    ) -> float | None:
        sec = times.get(place, {}).get(workload)
        if not isinstance(sec, float):
            return None
        if place not in self._usual:
            first = times.get(places[0], {}).get(workload)
            return sec / first if isinstance(first, float) else None
        changes = sorted(
            other / known[workload]
            for name, known in self._usual.items()
            if isinstance(other := times.get(name, {}).get(workload), float) and workload in known
        )
        usual = self._usual[place].get(workload)
        if usual is None:
            return None
        # The smaller of two: of two devices one throttles, and not the other one overtakes itself.
        return sec / usual / changes[(len(changes) - 1) // 2]
