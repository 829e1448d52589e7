"""What measuring tells its caller, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Workforce:
    """Who is at work on what is measured.

    Attributes
    ----------
    workers : int
        Devices that candidates are timed on.
    busy : int
        Those that time something now.
    queued : int
        Candidates that were built and wait for one.
    building : int
        Candidates that are to be built, or are being.
    """

    workers: int
    busy: int
    queued: int
    building: int


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
    workforce : Workforce or None
        Who is at work, where that is known.
    """

    stage: str
    done: int
    total: int
    message: str = ""
    workforce: Workforce | None = None


ProgressCallback = Callable[[ProgressEvent], None]


def ignore(_: ProgressEvent) -> None:
    """The callback of those who do not want to know."""
