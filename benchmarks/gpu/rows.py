"""What the contenders of a contest did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """What one contender did.

    Attributes
    ----------
    round_sec, wall_sec : list of float
        Seconds per call of each round, by CUDA events and by the host's clock.
    difference : float or None
        Largest output difference to eager PyTorch in float64, relative to the largest value.
    rms : float or None
        Root mean square of that difference, of the output's own; the worst output's.
    fewest : int
        Elements of the smallest output.
    same_as : str
        The contender whose library this is too; it is timed once.
    failure : str
        Why there are no times; empty when there are.
    missing : bool
        Not available here, which is no failure.
    """

    engine: str
    round_sec: list[float] = field(default_factory=list)
    wall_sec: list[float] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    difference: float | None = None
    rms: float | None = None
    fewest: int = 0
    same_as: str = ""
    failure: str = ""
    missing: bool = False


def timed(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows with times by name; one that shares another's library has its times."""
    by_name = {row.engine: row for row in rows}
    found = {}
    for row in rows:
        source = by_name.get(row.same_as, row) if row.same_as else row
        if not row.failure and source.round_sec and not source.failure:
            found[row.engine] = source
    return found
