"""Who measured what, how long, and how much of the time they were at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collage.report.units import format_sec


@dataclass(frozen=True)
class WorkerUse:
    """What one device did.

    Attributes
    ----------
    name : str
        As the workers' engine calls it, for example ``cuda:1``.
    tasks : dict of str to int
        How many candidates of which backend it timed, or ``whole models``: each contest counts.
    busy_sec : float
        Wall time of that.
    share : float or None
        Of the time in which anything was measured; None where that is not known.
    left_out : str
        Why it took no further part; empty when it did to the end.

    Examples
    --------
    >>> use = WorkerUse("cuda:1", {"cutlass": 12, "whole models": 1}, 30.0, 0.75)
    >>> use.what, use.how_long
    ('12 cutlass, 1 whole models', '30.0 s (75 %)')
    """

    name: str
    tasks: dict[str, int] = field(default_factory=dict)
    busy_sec: float = 0.0
    share: float | None = None
    left_out: str = ""

    @property
    def what(self) -> str:
        """What it timed, most first."""
        ranked = sorted(self.tasks.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} {what}" for what, count in ranked) or "nothing"

    @property
    def how_long(self) -> str:
        """How long it was at it, and what share of the time that is."""
        share = "" if self.share is None else f" ({self.share * 100:.0f} %)"
        return f"{format_sec(self.busy_sec)}{share}"


@dataclass(frozen=True)
class BuilderUse:
    """What all builders did.

    Attributes
    ----------
    builders : int
        That built at the same time.
    built : int
        Candidates.
    busy_sec : float
        What each of them took, added up.
    share : float or None
        Of the builders' time in which anything was measured; None where that is not known.

    Examples
    --------
    >>> BuilderUse(14, built=210, busy_sec=840.0, share=0.6).text
    '210 candidates were built by 14 builders: 840 s (60 %)'
    """

    builders: int = 0
    built: int = 0
    busy_sec: float = 0.0
    share: float | None = None

    @property
    def text(self) -> str:
        """In one line; empty when nothing was built."""
        if not self.built:
            return ""
        share = "" if self.share is None else f" ({self.share * 100:.0f} %)"
        who = f"{self.builders} builders" if self.builders > 1 else "1 builder"
        return f"{self.built} candidates were built by {who}: {format_sec(self.busy_sec)}{share}"


def share_of(part_sec: float, whole_sec: float) -> float | None:
    """A share between 0 and 1; None of nothing.

    Parameters
    ----------
    part_sec, whole_sec : float
        The part may be a little more than the whole, where clocks are read one after the other.

    Returns
    -------
    float or None
        None where the whole is nothing.

    Examples
    --------
    >>> share_of(3.0, 4.0), share_of(0.0, 0.0)
    (0.75, None)
    """
    return min(1.0, part_sec / whole_sec) if whole_sec > 0 else None


def is_worth_a_table(uses: Sequence[WorkerUse]) -> bool:
    """Whether a terminal shows them: of one device that did everything there is nothing to say."""
    return len(uses) > 1 or any(use.left_out for use in uses)
