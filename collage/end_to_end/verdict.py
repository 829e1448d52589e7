"""Which of the contenders wins, and how each of the others stands against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage.cost.contest import PairedComparison, paired_comparisons
from collage.end_to_end.baselines import is_single
from collage.end_to_end.evaluation import Evaluation, Lowered, NothingRunsError


@dataclass(frozen=True)
class Verdict:
    """Who won.

    Attributes
    ----------
    winner : Evaluation
        One of those that were compared.
    comparisons : tuple of PairedComparison or None
        Of each, by position; None of one that did not run in the same rounds as the winner.

    Examples
    --------
    >>> import tvm
    >>> from collage.cost import Cost, CostStatus
    >>> from collage.end_to_end import Contender
    >>> from collage.search.partitioning import Partitioning
    >>> contender, cost = Contender("greedy", Partitioning(())), Cost(CostStatus.VALID, 1e-3)
    >>> decide([Evaluation(contender, tvm.IRModule(), "2d71", cost)]).comparisons
    (None,)
    """

    winner: Evaluation
    comparisons: tuple[PairedComparison | None, ...]


def decide(evaluations: Sequence[Evaluation]) -> Verdict:
    """Choose by paired rounds; by medians where there are none, as where costs are estimated.

    Among equals a single backend wins, for an answer that is not proven faster should not be the
    more intricate one, then whoever has the fewest partitions, then the earlier.

    Raises
    ------
    NothingRunsError
        When none is valid; gives every reason.

    Examples
    --------
    The search's answer is 0.4 % faster in every round, which is a tie:

    >>> import tvm
    >>> from collage.cost import Cost
    >>> from collage.cost.contest import Rounds
    >>> from collage.end_to_end import Contender
    >>> from collage.search.partitioning import Partitioning
    >>> evaluations = [
    ...     Evaluation(
    ...         Contender(name, Partitioning(())),
    ...         tvm.IRModule(),
    ...         name,
    ...         Cost.of_samples(seconds),
    ...         rounds=Rounds("5f1c", seconds),
    ...     )
    ...     for name, seconds in [
    ...         ("search", (1.000,) * 8),
    ...         ("single:onednn", (1.004,) * 8),
    ...         ("greedy", (1.2,) * 8),
    ...     ]
    ... ]
    >>> verdict = decide(evaluations)
    >>> verdict.winner.contender.name, [one.outcome.value for one in verdict.comparisons]
    ('single:onednn', ['tie', 'chosen', 'slower'])
    """
    valid = [position for position, one in enumerate(evaluations) if one.cost.is_valid]
    if not valid:
        reasons = "; ".join(f"{e.contender.name}: {e.cost.reason}" for e in evaluations)
        raise NothingRunsError(f"no partitioning runs correctly: {reasons}", evaluations)
    found: list[PairedComparison | None] = [None] * len(evaluations)
    playing = _largest_contest({position: evaluations[position] for position in valid})
    if not playing:
        winner = min((evaluations[i] for i in valid), key=lambda one: one.cost.median_sec)
        return Verdict(winner, tuple(found))
    # Contenders that came out the same played as one.
    together = [evaluations[position] for position in playing]
    rows = {one.key: one.rounds.counted for one in together if one.rounds is not None}
    keys = list(rows)
    order = list(dict.fromkeys(keys.index(one.key) for one in sorted(together, key=intricacy)))
    by_key = dict(zip(keys, paired_comparisons(list(rows.values()), order), strict=True))
    for position in playing:
        found[position] = by_key[evaluations[position].key]
    winner = next(one for one in together if by_key[one.key].is_chosen)
    return Verdict(winner, tuple(found))


def best(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The winner; see :func:`decide`.

    Examples
    --------
    >>> import tvm
    >>> from collage.cost import Cost, CostStatus
    >>> from collage.end_to_end import Contender
    >>> from collage.search.partitioning import Partitioning
    >>> evaluations = [
    ...     Evaluation(Contender(name, Partitioning(())), tvm.IRModule(), name, cost)
    ...     for name, cost in [
    ...         ("search", Cost(CostStatus.VALID, 2e-3)),
    ...         ("greedy", Cost(CostStatus.VALID, 3e-3)),
    ...         ("single:onednn", Cost(CostStatus.TIMED_OUT)),
    ...     ]
    ... ]
    >>> best(evaluations).contender.name
    'search'
    """
    return decide(evaluations).winner


def _largest_contest(valid: Mapping[int, Evaluation]) -> list[int]:
    """Those that played in the same rounds; nobody where nobody played against another."""
    # In logs of earlier releases a trial of models has the name of the contest that followed it.
    played = {
        i: (one.rounds.contest, len(one.rounds.counted))
        for i, one in valid.items()
        if one.rounds is not None
    }
    models = {valid[i].key: contest for i, contest in played.items()}
    if not models:
        return []
    contest, members = Counter(models.values()).most_common(1)[0]
    if members == 1 and len({one.key for one in valid.values()}) > 1:
        return []
    return [i for i, one in played.items() if one == contest]


def intricacy(lowered: Lowered) -> tuple[bool, int]:
    """Who is preferred among equals: those of whom this is less.

    Examples
    --------
    >>> import tvm
    >>> from collage.end_to_end import Contender
    >>> from collage.search.partitioning import Partitioning
    >>> names = "greedy", "single:onednn"
    >>> both = [Lowered(Contender(n, Partitioning(())), tvm.IRModule(), n) for n in names]
    >>> min(both, key=intricacy).contender.name
    'single:onednn'
    """
    contender = lowered.contender
    return not is_single(contender), len(contender.partitioning.candidates)
