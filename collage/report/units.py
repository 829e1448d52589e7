"""How times are written in reports and on the terminal."""

from __future__ import annotations

from typing import Protocol

_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"))


def format_sec(seconds: float | None) -> str:
    """Seconds in the unit a reader wants, three significant digits: ``1.24 ms``, ``87.0 µs``.

    Examples
    --------
    >>> format_sec(0.00124), format_sec(8.7e-5), format_sec(None)
    ('1.24 ms', '87.0 µs', '–')
    """
    if seconds is None:
        return "–"
    factor, unit = _unit(seconds)
    scaled = seconds * factor
    digits = 0 if abs(scaled) >= 100 else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:.{digits}f} {unit}"


def format_time(median_sec: float | None, spread_sec: float) -> str:
    """A median and its spread in one unit: ``1.24 ms ± 0.03``.

    Parameters
    ----------
    median_sec : float or None
        None for what was not measured.
    spread_sec : float
        Written in the median's unit.

    Returns
    -------
    str
        A dash for no median.

    Examples
    --------
    >>> format_time(0.00124, 3e-5)
    '1.24 ms ± 0.03'
    """
    if median_sec is None:
        return "–"
    factor, _ = _unit(median_sec)
    text = format_sec(median_sec)
    digits = len(text.split(" ")[0].partition(".")[2])
    return f"{text} ± {spread_sec * factor:.{max(digits, 1)}f}"


def format_interval(low_sec: float | None, high_sec: float | None, n: int) -> str:
    """An interval and the number of samples that it is of: ``1.22 ms to 1.26 ms, n = 12``.

    Parameters
    ----------
    low_sec, high_sec : float or None
        None where there are too few samples for one.
    n : int
        The samples.

    Returns
    -------
    str
        The number alone where there is no interval.

    Examples
    --------
    >>> format_interval(0.00122, 0.00126, 12), format_interval(None, None, 4)
    ('1.22 ms to 1.26 ms, n = 12', 'n = 4')
    """
    if low_sec is None or high_sec is None:
        return f"n = {n}"
    return f"{format_sec(low_sec)} to {format_sec(high_sec)}, n = {n}"


class Costly(Protocol):
    """What has a time, measured or guessed."""

    @property
    def median_sec(self) -> float | None: ...
    @property
    def spread_sec(self) -> float: ...
    @property
    def guess_sec(self) -> float | None: ...


def format_cost(part: Costly) -> str:
    """A time that was measured, or one that is only guessed and says so.

    Examples
    --------
    >>> from collage.report.graph_rows import PartitionInfo
    >>> format_cost(PartitionInfo(0, "tvm", [0], [], "fuse_ops", None, 0.0, "", guess_sec=0.00124))
    'about 1.24 ms (a guess)'
    """
    if part.median_sec is None and part.guess_sec is not None:
        return f"about {format_sec(part.guess_sec)} (a guess)"
    return format_time(part.median_sec, part.spread_sec)


def _unit(seconds: float) -> tuple[float, str]:
    for factor, unit in _UNITS:
        if abs(seconds) * factor >= 1:
            return factor, unit
    return _UNITS[-1]
