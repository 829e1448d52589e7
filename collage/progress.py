"""What a running search tells its caller, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """One step of a running search.

    Attributes
    ----------
    stage : str
        What is being done, for example ``import``, ``measure`` or ``end to end``. Events of one
        stage come one after another.
    done, total : int
        Steps finished and steps known so far; ``total`` may grow, and is 0 when not known.
    message : str
        One line about this step, for example the workload just measured.
    """

    stage: str
    done: int
    total: int
    message: str = ""


ProgressCallback = Callable[[ProgressEvent], None]
