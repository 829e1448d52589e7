"""What is known of a tensor that is there when a part runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A tensor that is there when a part runs.

    Attributes
    ----------
    shape : tuple of int
        The most that there may be.
    dtype : str
        As numpy calls it.
    counts : tuple of (int, str)
        Of an axis of which data say how much there is, the value that says it.

    Examples
    --------
    >>> Value((4, 8), "float32").counts
    ()
    """

    shape: tuple[int, ...]
    dtype: str
    counts: tuple[tuple[int, str], ...] = ()
