"""A search's progress on standard error: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from collage.cost.progress import ProgressEvent, Workforce

PLAIN_INTERVAL_SEC = 10.0
"""Least time between two plain lines of one stage."""
MESSAGE_WIDTH = 90
"""Columns of a plain line's message; a joined region's description can be very long."""
END_INTERVAL_SEC = 1.0
"""The same for a line that tells of a stage's end."""


def _workforce_text(workforce: Workforce, finished: int, elapsed_sec: float) -> str:
    """Who is at work, what waits, and how fast it goes."""
    parts = [f"{workforce.busy} of {workforce.workers} workers busy"]
    if workforce.building:
        parts.append(f"{workforce.building} to build")
    if workforce.queued:
        parts.append(f"{workforce.queued} to time")
    if finished > 0 and elapsed_sec > 0:
        parts.append(f"{finished / elapsed_sec:.1f}/s")
    return ", ".join(parts)


class LiveProgress:
    """One bar per stage, with the time left, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[stage]:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[workforce]}", markup=False),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, tuple[float, int]] = {}

    def __call__(self, event: ProgressEvent) -> None:
        if event.stage not in self._tasks:
            for earlier in self._progress.tasks:
                # A stage may end before its total: the search found out that it needs no more.
                done = max(earlier.completed, 1)
                self._progress.update(earlier.id, total=done, completed=done)
            self._tasks[event.stage] = self._progress.add_task(
                "", stage=event.stage, workforce="", total=event.total or None
            )
            self._began[event.stage] = (time.monotonic(), event.done)
        began_sec, first = self._began[event.stage]
        elapsed_sec = time.monotonic() - began_sec
        self._progress.update(
            self._tasks[event.stage],
            completed=event.done,
            total=event.total or None,
            description=event.message[:60],
            workforce=_workforce_text(event.workforce, event.done - first, elapsed_sec)
            if event.workforce
            else "",
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class PlainProgress:
    """A line at a stage's beginning and end, and every so often in between.

    Parameters
    ----------
    write : callable
        Takes one line, without its end.
    clock : callable
        Seconds that only grow.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._began: dict[str, tuple[float, int]] = {}
        self._shown_sec: dict[str, float] = {}

    def __call__(self, event: ProgressEvent) -> None:
        now = self._clock()
        begins = event.stage not in self._began
        if begins:
            self._began[event.stage] = (now, event.done)
        # A stage whose total grows as it goes is at its end many times.
        ends = event.total > 0 and event.done >= event.total
        wait_sec = END_INTERVAL_SEC if ends else PLAIN_INTERVAL_SEC
        if not begins and now - self._shown_sec[event.stage] < wait_sec:
            return
        self._shown_sec[event.stage] = now
        count = f" {event.done}/{event.total}" if event.total else ""
        message = event.message
        if len(message) > MESSAGE_WIDTH:
            message = f"{message[: MESSAGE_WIDTH - 26]} … {message[-23:]}"
        message = f" {message}" if message else ""
        self._write(f"[{event.stage}]{count}{message}{self._standing(event, now)}")

    def _standing(self, event: ProgressEvent, now: float) -> str:
        began_sec, first_done = self._began[event.stage]
        finished, left = event.done - first_done, event.total - event.done
        parts = []
        if event.workforce is not None:
            parts.append(_workforce_text(event.workforce, finished, now - began_sec))
        if finished > 0 and left > 0:
            parts.append(f"about {(now - began_sec) / finished * left:.0f} s left")
        return f" ({', '.join(parts)})" if parts else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def progress_display() -> LiveProgress | PlainProgress:
    """What fits standard error.

    Examples
    --------
    >>> with progress_display() as progress:
    ...     progress(ProgressEvent("measure", 1, 3))  # on standard error
    """
    if sys.stderr.isatty():
        return LiveProgress(Console(stderr=True))
    return PlainProgress(_write_whole)


def _write_whole(line: str) -> None:
    """A line with its end in one piece: several threads tell of what they do."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
