"""How a contender stands against the one that was chosen, in words."""

from __future__ import annotations

from collections.abc import Sequence

from collage.report.data import EndToEnd


def verdict_of(row: EndToEnd, rows: Sequence[EndToEnd]) -> str:
    """One contender's verdict; empty where it did not run in the same rounds as the chosen one.

    Parameters
    ----------
    row : EndToEnd
        Whose verdict it is.
    rows : sequence of EndToEnd
        All contenders.

    Returns
    -------
    str
        A clause for a table, with the ratio and its interval.

    Examples
    --------
    >>> search = EndToEnd("search", 1e-3, 1e-5, 12, chosen=True, outcome="chosen")
    >>> onednn = EndToEnd(
    ...     "single:onednn",
    ...     1.07e-3,
    ...     1e-5,
    ...     n=12,
    ...     outcome="slower",
    ...     ratio=1.071,
    ...     ratio_low=1.062,
    ...     ratio_high=1.083,
    ... )
    >>> verdict_of(onednn, [search, onednn])
    '7.1 % slower [6.2, 8.3]'
    >>> verdict_of(search, [search, onednn])
    'won by 7.1 % [6.2, 8.3] over single:onednn'
    """
    if row.outcome == "chosen":
        return _won(rows)
    if row.ratio is None:
        return ""
    if row.outcome == "slower":
        return f"{_percent(row.ratio)} % slower{_interval(row)}"
    if row.outcome == "tie":
        return f"a tie, {_signed(row.ratio)} %{_interval(row, signed=True)}"
    if row.outcome == "left":
        return f"left early, {row.ratio:.2f} times as long after {row.rounds} rounds"
    return f"not decided, {_signed(row.ratio)} %{_interval(row, signed=True)}"


def disturbances(rows: Sequence[EndToEnd]) -> str:
    """What there is to say of disturbed rounds; empty when there were none.

    Examples
    --------
    >>> disturbances([EndToEnd("search", 1e-3, 1e-5, n=8, rounds=8, disturbed=2, discarded=2)])
    'the machine was disturbed in 2 rounds, which were measured again'
    """
    disturbed = max((row.disturbed for row in rows), default=0)
    if not disturbed:
        return ""
    plural = "s" if disturbed > 1 else ""
    if any(row.disturbed > row.discarded for row in rows):
        return f"the machine was disturbed throughout ({disturbed} round{plural}); all rounds count"
    were = "were" if plural else "was"
    return f"the machine was disturbed in {disturbed} round{plural}, which {were} measured again"


def _won(rows: Sequence[EndToEnd]) -> str:
    ties = [row.name for row in rows if row.outcome == "tie"]
    if ties:
        return f"tied with {', '.join(ties)}, and comes first in order"
    rivals = [row for row in rows if row.outcome != "chosen" and row.ratio is not None]
    if not rivals:
        return ""
    next_best = min(rivals, key=lambda row: row.ratio or 0.0)
    if next_best.outcome == "undecided":
        return f"not told apart from {next_best.name}"
    return (
        f"won by {_percent(next_best.ratio or 1.0)} %{_interval(next_best)} over {next_best.name}"
    )


def _interval(row: EndToEnd, *, signed: bool = False) -> str:
    if row.ratio_low is None or row.ratio_high is None:
        return ""
    text = _signed if signed else _percent
    return f" [{text(row.ratio_low)}, {text(row.ratio_high)}]"


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:.1f}"


def _signed(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f}"
