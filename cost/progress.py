"""What measuring tells its caller, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """One step.

    Attributes
    ----------
    stage : str
        For example ``measure``, ``compile``, ``repair`` or ``end to end``.
    done, total : int
        Steps finished and wanted in this stage so far.
    message : str
        One line, for example the workload just measured and its time.
    """

    stage: str
    done: int
    total: int
    message: str = ""


ProgressCallback = Callable[[ProgressEvent], None]


def ignore(_: ProgressEvent) -> None:
    """The callback of those who do not want to know."""
