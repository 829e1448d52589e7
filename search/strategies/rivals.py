"""What could change an answer, if it took a little less than was measured.

A search over measured costs is fooled by those that were measured at a lucky moment. Whoever
measures again has to know what is worth it: the parts of the answer, and what would replace some of
them if it were faster by a share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph
from collage.search.partitioning import Partitioning
from collage.search.strategies.candidate_pool import CandidatePool
from collage.search.strategies.cover import DEFAULT_MAX_STATES

_ROUNDS = 24
"""At the most; each finds a rival wherever there is one more."""


@dataclass(frozen=True)
class Rivalry:
    """Two ways to run the same operators.

    Attributes
    ----------
    kept : tuple of Candidate
        Of the answer.
    rival : tuple of Candidate
        Others, which hold the same operators.

    Examples
    --------
    >>> Rivalry((), ()).kept
    ()
    """

    kept: tuple[Candidate, ...]
    rival: tuple[Candidate, ...]


def rivalries(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    costs: CandidateCosts,
    answer: Partitioning,
    share: Callable[[Candidate], float],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Rivalry]:
    """What the answer's parts compete with.

    The cheapest cover is sought while what is no part of the answer counts with a share of its
    cost. What that brings in counts with all of it from then on, and so on, as a lazy search does
    with lower bounds. So nothing is left out that would be in the optimum, were the costs of all
    others no less than their shares.

    Parameters
    ----------
    graph : DataflowGraph
        What is covered.
    candidates : sequence of Candidate
        Those of unknown cost are left out; nothing is measured.
    costs : CandidateCosts
        Asked for what is known.
    answer : Partitioning
        The best one, by these costs.
    share : callable
        Of its cost that a candidate may take at the least; 1 for one whose cost is sure.
    should_stop : callable, optional
        Asked between rounds.

    Returns
    -------
    list of Rivalry
        Each over operators that have nothing to do with the others' of its round; without inline
        candidates.

    Examples
    --------
    >>> from collage.search import TableCosts
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> table = {Candidate(1, tvm): 1.0, Candidate(2, tvm): 1.0, Candidate(2, onednn): 1.05}
    >>> costs = TableCosts(table)
    >>> costs.seconds(list(table))
    [1.0, 1.0, 1.05]
    >>> answer = Partitioning(tuple(table)[:2])
    >>> [found] = rivalries(graph, list(table), costs, answer, lambda candidate: 0.9)
    >>> [candidate.backend for candidate in (*found.kept, *found.rival)]
    ['tvm', 'onednn']
    >>> rivalries(graph, list(table), costs, answer, lambda candidate: 0.99)
    []
    """
    pool = CandidatePool(graph, [*answer.candidates, *candidates], costs)
    kept = list(answer.candidates)
    usable = [p for p, measured in enumerate(pool.measured) if measured]
    settled = set(kept)
    found: dict[Rivalry, None] = {}
    for _ in range(_ROUNDS):
        values = [
            value if pool.candidates[p] in settled else value * share(pool.candidates[p])
            for p, value in enumerate(pool.values)
        ]
        cover = pool.cover(DEFAULT_MAX_STATES, should_stop, only=usable, values=values)
        if cover is None or should_stop():
            break
        path = [pool.candidates[p] for p in cover.positions]
        fresh = {candidate for candidate in path if candidate not in settled}
        if not fresh:
            break
        for rivalry in _apart(kept, path):
            if fresh & set(rivalry.rival):
                found.setdefault(rivalry)
        settled |= fresh
    return list(found)


def _apart(kept: Sequence[Candidate], other: Sequence[Candidate]) -> list[Rivalry]:
    """Where two covers differ: groups of parts over the same operators, as small as can be."""
    common = set(kept) & set(other)
    groups: list[tuple[int, list[Candidate], list[Candidate]]] = []
    sides = [(0, c) for c in kept if c not in common] + [(1, c) for c in other if c not in common]
    for side, candidate in sides:
        nodes, ours, theirs = candidate.nodes, list[Candidate](), list[Candidate]()
        (theirs if side else ours).append(candidate)
        apart = []
        for group in groups:
            if group[0] & nodes:
                nodes |= group[0]
                ours, theirs = [*group[1], *ours], [*group[2], *theirs]
            else:
                apart.append(group)
        groups = [*apart, (nodes, ours, theirs)]
    return [
        Rivalry(tuple(c for c in ours if not c.inline), tuple(c for c in theirs if not c.inline))
        for _, ours, theirs in groups
    ]
