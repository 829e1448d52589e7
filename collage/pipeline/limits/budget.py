"""How the time of one call is shared out: a budget that was asked for, and Ctrl-C.

From its end backwards: what exporting takes, what timing whole models against each other takes,
what compiling them takes. All the rest is for measuring candidates. How long a whole model takes is
known as soon as the first one, the answer in hand, was compiled and run; until then it is guessed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from collage.cost.deadline import Deadline
from collage.end_to_end import Seen

_EXPORT_SEC = 0.5
_EXPORT_SHARE = 0.02
_EXPORT_SEC_PER_OPERATOR = 6e-4
_COMPILE_SHARE = 0.2
_CHECK_SHARE = 0.08
"""Of the whole, as long as no model was compiled or run."""

_PREPARE_SHARE = 0.25

_TRIAL_SHARE = 0.4
"""Of the whole: what is compiled by then is tried out before anything is measured. It takes part in
the last comparison, too, and is not compiled again."""

_PATIENCE = 1.3
"""A contender may take so many times as long as the first model took."""

_HOPE = 4.0
"""One contender is tried in a quarter of the time that it should take: the answer in hand may have
been compiled beside the measuring, and on crowded cores that takes several times as long."""

_TRACE_CHECK_SHARE = 0.03
"""Of the whole: what a module's trace gives may be held against the module for so long."""

_HURRY_SEC = 240.0
"""Less than this is no time to compile all kernels that backends would choose among: for the twelve
networks of the benchmarks that takes 16 cores one to two minutes."""

_CONTEST_SHARE = 0.35
"""Of the time that is left once there is an answer in hand: at the most so much is kept for further
contenders, unless not even one fits into it."""


class Budget:
    """The time of one call, from its beginning on.

    Parameters
    ----------
    total_sec : float, optional
        Without it there is no limit but an interrupt.
    parallel : int
        Whole models that are compiled at once.
    began : float, optional
        When the call did, if not now.
    clock : callable
        The monotonic clock.

    Attributes
    ----------
    total_sec : float or None
        As asked for.
    interrupted : bool
        Whether the user wants the best answer so far.
    operators : int
        Of the model, as soon as it is imported: a report tells of each.

    Examples
    --------
    >>> budget = Budget(60.0, clock=lambda: 100.0)
    >>> budget.is_limited, budget.measuring.end < budget.compiling.end < budget.timing.end < 160.0
    (True, True)
    >>> guessed = budget.measuring.end
    >>> budget.saw(Seen(compile_sec=2.0, check_sec=0.5))
    >>> budget.measuring.end > guessed, budget.contenders_that_fit(3)
    (True, 3)
    >>> budget.interrupt()
    >>> budget.measuring.end <= 100.0, Budget().is_limited
    (True, False)
    """

    def __init__(
        self,
        total_sec: float | None = None,
        *,
        parallel: int = 2,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_sec = total_sec
        self.interrupted = False
        self.parallel = parallel
        self.operators = 0
        self._clock = clock
        self._begin = clock() if began is None else began
        self._total_sec = math.inf if total_sec is None else total_sec
        self._end = self._begin + self._total_sec
        self._interrupted_at = math.inf
        self._contest_began = math.inf
        self._parts: list[Budget] = []
        self._seen: Seen | None = None
        self._left_when_seen = 0.0 if total_sec is None else total_sec
        self.preparing = Deadline(
            lambda: (
                self._begin + _PREPARE_SHARE * (self._end - self._begin)
                if not self.interrupted
                else self._interrupted_at
            )
        )
        """How long the answer in hand may wait for the libraries that most promise it."""
        self.trying = Deadline(
            lambda: (
                self._begin + _TRIAL_SHARE * (self._end - self._begin)
                if not self.interrupted
                else self._interrupted_at
            )
        )
        """How long what is wanted of the first answer may be more than that it runs: a device that
        nobody else has, inputs that tell the most."""
        self.measuring = Deadline(self._measuring_end)
        """When no candidate is measured any longer."""
        self.compiling = Deadline(lambda: self._contest_end() - self._timing_sec(1))
        """When contenders that are not compiled are given up."""
        self.timing = Deadline(self._contest_end)
        """When contenders are no longer timed."""

    @property
    def is_limited(self) -> bool:
        """Whether there is less than all the time in the world."""
        return self._end < math.inf or self.interrupted

    @property
    def trace_check_sec(self) -> float | None:
        """How long a PyTorch module may run to be held against its trace; None without a limit.

        Examples
        --------
        >>> Budget(100.0).trace_check_sec, Budget().trace_check_sec
        (3.0, None)
        """
        return None if self.total_sec is None else _TRACE_CHECK_SHARE * self.total_sec

    @property
    def elapsed_sec(self) -> float:
        """Since the beginning."""
        return self._clock() - self._begin

    def interrupt(self) -> None:
        """The user wants the best answer so far: whatever is under way is to end."""
        if not self.interrupted:
            self.interrupted = True
            self._interrupted_at = self._clock()
            for part in self._parts:
                part.interrupt()

    def part(self, share: float) -> Budget:
        """A budget that begins now, for one of several functions; interrupted when this one is.

        Examples
        --------
        >>> half = Budget(60.0, clock=lambda: 100.0).part(0.5)
        >>> half.total_sec, Budget().part(0.5).is_limited
        (30.0, False)
        """
        left = None if self.total_sec is None else max(0.0, self._end - self._clock()) * share
        part = Budget(left, parallel=self.parallel, clock=self._clock)
        self._parts.append(part)
        if self.interrupted:
            part.interrupt()
        return part

    def saw(self, seen: Seen) -> None:
        """Take note of what the first whole models took."""
        waves = math.ceil(seen.models / self.parallel)
        self._seen = replace(seen, compile_sec=seen.compile_sec / waves)
        self._left_when_seen = self._end - self._clock()

    def enough(self) -> float:
        """How many whole models will do to begin with: all that there are, as long as they leave
        time to measure; then two, for a guess may be wrong; and at last one."""
        now = self._clock()
        if self.interrupted or now > self.compiling.end:
            return 1
        return 2 if now > self.trying.end else math.inf

    @property
    def hurries(self) -> bool:
        """Whether backends are to choose among their most promising kernels alone."""
        return self._total_sec < _HURRY_SEC

    @property
    def is_late(self) -> bool:
        """Whether it is time for the first answer that runs, whichever that is."""
        return self.enough() < math.inf

    def begin_contest(self) -> None:
        """Contenders are compiled and timed from now on; an interrupt ends that, too."""
        self._contest_began = self._clock()

    def contenders_that_fit(self, count: int) -> int:
        """How many of so many contenders there is time for now, besides the answer in hand."""
        if self._end == math.inf:
            # After an interrupt: what the search has found, and nothing to compare it with.
            return min(count, 1) if self.interrupted else count
        left = self._contest_end() - self._clock()
        fits = [n for n in range(1, count + 1) if self._contest_sec(n) <= left]
        # One is tried all the same: the time is there, and the next may be quicker.
        hopeful = count > 0 and self._contest_sec(1) <= _HOPE * left
        return max([int(hopeful), *fits])

    def _measuring_end(self) -> float:
        if self._end == math.inf:
            return self._interrupted_at
        keep = max(self._contest_sec(1), _CONTEST_SHARE * self._left_when_seen)
        keep = min(keep, self._contest_sec(3))
        return min(self._export_begin() - keep, self._interrupted_at)

    def _contest_end(self) -> float:
        if self._interrupted_at >= self._contest_began:
            return min(self._export_begin(), self._interrupted_at)
        return self._export_begin()

    def _export_begin(self) -> float:
        total = self.total_sec or 0.0
        each = _EXPORT_SEC_PER_OPERATOR * self.operators
        return self._end - min(_EXPORT_SEC + _EXPORT_SHARE * total + each, 0.25 * total)

    def _contest_sec(self, count: int) -> float:
        """What compiling so many contenders and timing them and the answer in hand takes."""
        waves = math.ceil(count / self.parallel)
        return _PATIENCE * waves * self._compile_sec() + self._timing_sec(count)

    def _timing_sec(self, count: int) -> float:
        each = self._seen.check_sec if self._seen else _CHECK_SHARE * (self.total_sec or 0.0)
        # They start at once, and load in turns.
        return _PATIENCE * (1 + 0.5 * count) * each

    def _compile_sec(self) -> float:
        return self._seen.compile_sec if self._seen else _COMPILE_SHARE * (self.total_sec or 0.0)
