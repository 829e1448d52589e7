"""What follows from the rounds of a contest for each of those that took part."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.contest.interval import Interval, median_interval
from collage.cost.contest.rounds import Table, Tolerance

CONFIDENCE = 0.99
"""Of an interval. It is looked at after every round, each time with a chance to be wrong."""


class Outcome(enum.Enum):
    """How one did against another in the rounds that both played.

    Examples
    --------
    >>> Outcome("tie") is Outcome.TIE
    True
    """

    CHOSEN = "chosen"
    SLOWER = "slower"
    """The interval of the ratio lies above 1, and its median beyond the tolerance."""
    TIE = "tie"
    """The interval lies within the tolerance."""
    UNDECIDED = "undecided"
    """The rounds were too few, or too different."""
    LEFT = "left"
    """It was so much slower that it played only a part of the rounds."""
    ALONE = "alone"
    """There was no round that both played."""


@dataclass(frozen=True)
class PairedComparison:
    """How one stands against the chosen one.

    Attributes
    ----------
    outcome : Outcome
        What came out.
    ratio : Interval or None
        Its time over the chosen one's, paired by rounds.

    Examples
    --------
    >>> PairedComparison(Outcome.SLOWER, Interval(1.07, 1.05, 1.10, n=12)).ratio.estimate
    1.07
    """

    outcome: Outcome
    ratio: Interval | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether it won."""
        return self.outcome is Outcome.CHOSEN


def paired_ratios(one: Sequence[float | None], other: Sequence[float | None]) -> list[float]:
    """Ratios of the times in rounds that both played.

    Parameters
    ----------
    one, other : sequence of float or None
        Times by round; None where it did not play.

    Returns
    -------
    list of float
        The first one's time over the other's, in the order of the rounds; empty when they never
        met.

    Examples
    --------
    >>> paired_ratios([2.0, None, 6.0], [1.0, 1.0, 2.0])
    [2.0, 3.0]
    """
    pairs = zip(one, other, strict=True)
    return [a / b for a, b in pairs if a is not None and b is not None]


def compare(
    one: Sequence[float | None],
    other: Sequence[float | None],
    tolerance: Tolerance,
    confidence: float = CONFIDENCE,
) -> PairedComparison:
    """How one stands against another.

    A difference that is proven, but within the tolerance, is a tie; one that is proven, but of
    whatever size, is not decided.

    Parameters
    ----------
    one, other : sequence of float or None
        Their times in the rounds that count. The other is the one that leads.
    tolerance : Tolerance
        Of a tie.
    confidence : float
        Of the interval.

    Returns
    -------
    PairedComparison
        With the interval of the ratio, one over other; without it when they played no round
        together.

    Examples
    --------
    >>> compare([1.1] * 8, [1.0] * 8, Tolerance()).outcome
    <Outcome.SLOWER: 'slower'>
    >>> compare([1.005] * 8, [1.0] * 8, Tolerance()).outcome
    <Outcome.TIE: 'tie'>
    >>> compare([1.1] * 7, [1.0] * 7, Tolerance()).outcome
    <Outcome.UNDECIDED: 'undecided'>
    """
    ratios = paired_ratios(one, other)
    if not ratios:
        return PairedComparison(Outcome.ALONE)
    ratio = median_interval(ratios, confidence)
    most = tolerance.ratio(statistics.median(sec for sec in other if sec is not None))
    return PairedComparison(_outcome(ratio, most), ratio)


def leader(table: Table, among: Sequence[int]) -> int:
    """Who is ahead: nobody took less time in more of the rounds that both played.

    Parameters
    ----------
    table : table of float or None
        Of the rounds that count.
    among : sequence of int
        Rows, at least one; the earlier of equals leads.

    Returns
    -------
    int
        A row of the table, one of ``among``.

    Examples
    --------
    The first row's one good round does not help it:

    >>> leader([[0.1, 2.0, 2.0], [1.0, 1.0, 1.0]], [0, 1])
    1
    """
    ahead = among[0]
    for row in among[1:]:
        ratios = paired_ratios(table[row], table[ahead])
        if ratios and statistics.median(ratios) < 1.0:
            ahead = row
    return ahead


def paired_comparisons(
    table: Table, order: Sequence[int], tolerance: Tolerance | None = None
) -> list[PairedComparison]:
    """How each stands, one of them as the chosen one.

    Chosen is the first, in a given order, of the leader and of those that are no slower: tied with
    it, or not told apart from it and less than the tolerance behind. So who among equals is chosen
    does not depend on which of them happened to be ahead this time.

    Parameters
    ----------
    table : table of float or None
        Of the rounds that count; each row has a time in one of them.
    order : sequence of int
        All rows, those to be preferred first.
    tolerance : Tolerance, optional
        Of a tie.

    Returns
    -------
    list of PairedComparison
        One for each row of the table; exactly one has the outcome ``CHOSEN``.

    Examples
    --------
    >>> table = [[1.000] * 8, [1.004] * 8, [1.3] * 8]
    >>> [comparison.outcome.value for comparison in paired_comparisons(table, [2, 1, 0])]
    ['tie', 'chosen', 'slower']
    """
    tolerance = tolerance or Tolerance()
    latest = max(_last(row) for row in table)
    staying = [row for row in order if _last(table[row]) == latest]
    ahead = leader(table, staying)
    chosen = next(row for row in staying if _is_equal(table, row, ahead, tolerance))
    found = []
    for row, times in enumerate(table):
        comparison = compare(times, table[chosen], tolerance)
        if row == chosen:
            comparison = PairedComparison(Outcome.CHOSEN)
        elif comparison.outcome is Outcome.ALONE:
            comparison = _by_way_of_others(table, row, chosen, tolerance)
        elif row not in staying and comparison.outcome is Outcome.UNDECIDED:
            comparison = PairedComparison(Outcome.LEFT, comparison.ratio)
        found.append(comparison)
    return found


def _by_way_of_others(
    table: Table, row: int, chosen: int, tolerance: Tolerance
) -> PairedComparison:
    """How one stands that never met the chosen one, but somebody who did, or who met one such.

    The ends of the interval are those of all ratios on the way together, so it is a wide one.
    """
    ways: dict[int, Interval] = {chosen: Interval(1.0, 1.0, 1.0, n=sum(map(bool, table[chosen])))}
    newest = [chosen]
    while newest and row not in ways:
        found: dict[int, Interval] = {}
        for nearer in newest:
            for other in range(len(table)):
                ratios = paired_ratios(table[other], table[nearer])
                if other in ways or other in found or not ratios:
                    continue
                step, rest = median_interval(ratios, CONFIDENCE), ways[nearer]
                found[other] = Interval(
                    step.estimate * rest.estimate,
                    max(0.0, step.low) * rest.low,
                    step.high * rest.high,
                    min(step.n, rest.n),
                )
        ways |= found
        newest = list(found)
    if row not in ways:
        return PairedComparison(Outcome.ALONE)
    most = tolerance.ratio(statistics.median(sec for sec in table[chosen] if sec is not None))
    return PairedComparison(_outcome(ways[row], most), ways[row])


def _outcome(ratio: Interval, most: float) -> Outcome:
    """What follows from a ratio, of which so much is still a tie."""
    if ratio.within(1 / most, most):
        return Outcome.TIE
    proven = ratio.low > 1.0 and ratio.estimate > most
    return Outcome.SLOWER if proven else Outcome.UNDECIDED


def _is_equal(table: Table, row: int, ahead: int, tolerance: Tolerance) -> bool:
    if row == ahead:
        return True
    comparison = compare(table[row], table[ahead], tolerance)
    if comparison.outcome is Outcome.UNDECIDED and comparison.ratio is not None:
        sec = statistics.median(sec for sec in table[ahead] if sec is not None)
        return comparison.ratio.estimate <= tolerance.ratio(sec)
    return comparison.outcome is Outcome.TIE


def _last(row: Sequence[float | None]) -> int:
    """The last round that it played; -1 when it played none."""
    return max((number for number, sec in enumerate(row) if sec is not None), default=-1)
