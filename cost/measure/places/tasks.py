"""What waits for a place that is free, and how often it may cost one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collage.cost.measure.engine import Place
from collage.cost.measure.runner import PlaceLostError

Task = Callable[[Place], None]
"""Something to do at whichever place is free."""

SetAside = Callable[[str], None]
"""Told why something is not done at all."""

_MOST_LOST = 2
"""Places that one task may take along: the third would hardly fare better, nor the last one."""


def never() -> bool:
    """No task is urgent that does not say so."""
    return False


@dataclass
class Pending:
    """A task that waits, or is under way.

    Attributes
    ----------
    task : callable
        Given the place that does it.
    set_aside : callable, optional
        Called instead, with a reason, once too many places were lost with it.
    is_urgent : callable
        Whether it is to be done before what is not.
    lost : int
        Places that were lost with it.

    Examples
    --------
    >>> pending = Pending(print, print)
    >>> pending.is_worth_another(PlaceLostError("gpu 0 fell off the bus"))
    True
    >>> pending.is_worth_another(PlaceLostError("gpu 1 fell off the bus"))
    2 workers were lost with it, the last one because: gpu 1 fell off the bus
    False
    """

    task: Task
    set_aside: SetAside | None
    is_urgent: Callable[[], bool] = never
    lost: int = 0

    def is_worth_another(self, error: PlaceLostError) -> bool:
        """Whether to try it at another place, after one was lost with it; sets it aside if not.

        Raises
        ------
        PlaceLostError
            The error itself, where nobody is to be told.
        """
        self.lost += 1
        if self.lost < _MOST_LOST:
            return True
        if self.set_aside is None:
            raise error
        self.set_aside(f"{self.lost} workers were lost with it, the last one because: {error}")
        return False
