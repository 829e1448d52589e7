"""Time against error: where each whole model lies, when an error was allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage.report.data import EndToEnd, Report
from collage.report.units import format_sec

_LEFT, _WIDTH, _TOP, _HEIGHT = 70.0, 600.0, 12.0, 220.0
"""The field of the drawing, in pixels."""

_LEAST = 1e-7
"""What is drawn of smaller errors: float32 has no more digits."""


@dataclass(frozen=True)
class FrontierPoint:
    """A whole model in the drawing; x, y in pixels."""

    x: float
    y: float
    label: str
    tip: str
    chosen: bool


@dataclass(frozen=True)
class FrontierChart:
    """Points between time and error.

    Attributes
    ----------
    limit_x : float
        Where the allowed error lies.
    ticks : tuple of (float, str)
        Powers of ten of the error, with their places.
    levels : tuple of (float, str)
        Times, with their places.
    """

    points: tuple[FrontierPoint, ...]
    limit_x: float
    ticks: tuple[tuple[float, str], ...]
    levels: tuple[tuple[float, str], ...]
    width: float = _LEFT + _WIDTH + 20.0
    height: float = _TOP + _HEIGHT + 44.0


def frontier_chart(report: Report) -> FrontierChart | None:
    """The drawing; None where no error was allowed or nothing ran.

    Examples
    --------
    >>> from collage.report import EndToEnd
    >>> rows = [EndToEnd("search", 1e-3, 1e-5, 9, chosen=True, largest_error=3e-3)]
    >>> lists = {"targets": [], "nodes": [], "partitions": [], "end_to_end": rows}
    >>> chart = frontier_chart(Report("net", "", {}, {}, max_error=1e-2, **lists))
    >>> chart.points[0].x < chart.limit_x
    True
    """
    ran = [e for e in report.end_to_end if e.median_sec and e.largest_error is not None]
    if report.max_error is None or not ran:
        return None
    errors = [max(row.largest_error or 0.0, _LEAST) for row in ran]
    low = math.floor(math.log10(min(errors)))
    high = max(low + 1, math.ceil(math.log10(max(report.max_error, *errors))))
    slowest = 1.1 * max(row.median_sec or 0.0 for row in ran)

    def x_of(error: float) -> float:
        return _LEFT + _WIDTH * (math.log10(max(error, _LEAST)) - low) / (high - low)

    def y_of(seconds: float) -> float:
        return _TOP + _HEIGHT * (1 - seconds / slowest)

    # Contenders that came out the same are one point.
    places: dict[tuple[float, float], list[EndToEnd]] = {}
    for row, error in zip(ran, errors, strict=True):
        places.setdefault((x_of(error), y_of(row.median_sec or 0.0)), []).append(row)
    points = [_point(x, y, rows) for (x, y), rows in places.items()]
    ticks = tuple((x_of(10.0**power), f"1e{power}") for power in range(low, high + 1))
    levels = tuple((y_of(slowest * n / 4), format_sec(slowest * n / 4)) for n in range(1, 5))
    return FrontierChart(tuple(points), x_of(report.max_error), ticks, levels)


def _point(x: float, y: float, rows: list[EndToEnd]) -> FrontierPoint:
    names, first = ", ".join(row.name for row in rows), rows[0]
    tip = f"{names}: {format_sec(first.median_sec or 0.0)}, off by {first.largest_error:.1e}"
    return FrontierPoint(x, y, names, tip, any(row.chosen for row in rows))
