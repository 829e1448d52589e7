"""Moments after which nothing may be under way any longer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from collage.backends.contract.errors import OutOfTimeError


class Deadline:
    """A moment on the monotonic clock; it may move while others look at it.

    Parameters
    ----------
    end : callable
        Gives the moment as it is now: what was seen meanwhile, or an interrupt, may have moved it.

    Examples
    --------
    >>> from collage.cost.deadline import NEVER
    >>> NEVER.left_sec(), NEVER.is_up
    (inf, False)
    >>> soon = Deadline.after(60)
    >>> 59 < soon.left_sec() <= 60, NEVER.or_earlier(soon).is_up
    (True, False)
    >>> Deadline.after(0).check()
    Traceback (most recent call last):
        ...
    collage.backends.contract.errors.OutOfTimeError: the time is spent
    """

    def __init__(self, end: Callable[[], float]) -> None:
        self._end = end

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now on."""
        end = time.monotonic() + seconds
        return cls(lambda: end)

    @property
    def end(self) -> float:
        """When it is, on the monotonic clock; infinite for never."""
        return self._end()

    @property
    def is_limited(self) -> bool:
        """Whether it comes at all, as things stand."""
        return self.end < math.inf

    @property
    def is_up(self) -> bool:
        """Whether it has passed."""
        return self.left_sec() <= 0

    def left_sec(self) -> float:
        """Seconds until then; negative afterwards."""
        end = self.end
        return end - time.monotonic() if end < math.inf else math.inf

    def check(self) -> None:
        """Nothing, as long as there is time.

        Raises
        ------
        OutOfTimeError
            When there is none.
        """
        if self.is_up:
            raise OutOfTimeError("the time is spent")

    def or_earlier(self, other: Deadline) -> Deadline:
        """The earlier of the two, whichever that is when it is looked at."""
        return Deadline(lambda: min(self.end, other.end))


NEVER = Deadline(lambda: math.inf)
"""For those who have all the time in the world."""
