"""The optimal partitioning under additive cost, measuring only what can still matter.

LazySP (Dellin & Srinivasa, ICAPS 2016): find the shortest path with known costs where there are any
and lower bounds elsewhere, measure what is not yet measured on it, and repeat until the shortest
path is measured throughout. It is then optimal, however much was never measured.

Bounds that hold for certain are far below what most candidates take, and a proof by them alone asks
for nearly everything. Where ties are left to chance anyway, likely bounds stand in for them: of
ResNet-50's 633 workloads on five backends it asked 529; with likely ones fewer
(docs/measuring.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, zip_longest

from collage.backends.contract.errors import SearchError
from collage.search.candidates import Candidate
from collage.search.costs import CandidateCosts
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning
from collage.search.rules._base import PartitionRule
from collage.search.strategies.candidate_pool import CandidatePool
from collage.search.strategies.cover import DEFAULT_MAX_STATES, Cover
from collage.search.strategies.outcome import SearchProgress, SearchResult


@dataclass(frozen=True)
class Wanted:
    """What a search would have evaluated next.

    Attributes
    ----------
    urgent : iterable of Candidate
        It cannot end without them.
    offered : iterable of Candidate
        Others, the most promising ones first: for who would be idle. They are found while one
        looks through them.

    Examples
    --------
    >>> Wanted((), ()).urgent
    ()
    """

    urgent: Iterable[Candidate]
    offered: Iterable[Candidate]


_FORESEEN_ROUNDS = 8
"""Of those that are played through before candidates are offered by their prices alone."""

_STATES_AT_THE_END = 20_000
"""Visited for the bound that is left when a search is cut off."""

Peek = Callable[[Candidate], float | None]
"""What costs would say of a candidate without anybody waiting; None where somebody would."""

Expect = Callable[[Candidate], float]
"""About what a candidate takes that costs would have to find out. It is not asked about."""

Stream = Callable[[Callable[[Peek, Expect], Wanted | None]], bool]
"""Evaluates for as long as it is told what is wanted, and asks anew whenever something is known.
Says whether all that it let the search see still holds."""


def _in_turn(wanted: Callable[[Peek, Expect], Wanted | None]) -> bool:
    """The :data:`Stream` of those who evaluate one thing at a time: they wait to be asked."""
    return True


def search(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    costs: CandidateCosts,
    *,
    seeds: Sequence[Partitioning] = (),
    should_stop: Callable[[], bool] | None = None,
    stream: Stream = _in_turn,
    batch_size: int = 32,
    on_round: Callable[[SearchProgress], None] | None = None,
    max_states: int = DEFAULT_MAX_STATES,
    last_resorts: Sequence[PartitionRule] = (),
    is_slow_to_build: Callable[[Candidate], bool] = lambda candidate: False,
    tolerance: float = 0.0,
) -> SearchResult:
    """The cheapest partitioning of a graph under additive cost.

    Parameters
    ----------
    graph : DataflowGraph
        What is to be covered.
    candidates : sequence of Candidate
        Earlier ones win ties.
    costs : CandidateCosts
        Asked lazily and in batches; never for inline candidates.
    seeds : sequence of Partitioning
        Evaluated before anything else, their candidates included in the search. The first one
        comes first, so that a search that is stopped after it has something to return; the others
        take turns, so that none of them is left out when time is short.
    should_stop : callable, optional
        Asked between batches; once it says yes, or costs say that there is no time, the answer is
        made of what was measured and, with guessed costs, of the seeds' candidates.
    stream : callable, optional
        Where many candidates are evaluated at once: given who says what is wanted, it keeps
        everybody busy until nothing is, with what later rounds will most likely ask. The rounds are
        the same as without it, whatever becomes known first.
    batch_size : int
        Most candidates evaluated between two questions to ``should_stop``.
    on_round : callable, optional
        Given the progress after each round.
    max_states : int
        See :func:`collage.search.strategies.cover.cheapest_cover`.
    last_resorts : sequence of PartitionRule
        Asked one after the other, and only once no usable candidates cover the graph: what they
        find for bindings that are left over takes part from then on.
    is_slow_to_build : callable, optional
        Whether a candidate that was not measured cannot be compiled soon: of a search that is cut
        off the answer has such ones only where nothing else covers the graph.
    tolerance : float
        Costs that were measured differ by chance, and so would the answers of two searches. Of
        candidates for the same bindings that are within this share of the cheapest the earliest
        stands; among covers those of larger candidates are preferred, by half of it at most. So the
        answer costs at most ``(1 + tolerance) * (1 + tolerance / 2)`` times the least. Once the
        best cover of what was measured is within half of it of what none is likely to cost less
        than, it is the answer: what is left to be measured could only decide a tie.

    Returns
    -------
    SearchResult
        Complete unless ``should_stop`` or ``max_states`` cut the search short.

    Raises
    ------
    SearchError
        When no set of usable candidates covers the graph; names every binding that nothing
        covers, and ``value`` is their indices.

    Notes
    -----
    Each round measures at least one candidate, so there are at most as many rounds as candidates;
    the time of a round is that of :func:`~collage.search.cheapest_cover`. The result depends only
    on the graph, the order of the candidates and the costs.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> from collage.search import TableCosts
    >>> graph = DataflowGraph.from_uses([[], [0]])
    >>> table = {Candidate(0b01, tvm): 2.0, Candidate(0b10, tvm): 2.0, Candidate(0b11, onednn): 3.0}
    >>> found = search(graph, list(table), TableCosts(table))
    >>> found.complete, found.partitioning.seconds
    (True, 3.0)
    >>> [candidate.backend for candidate in found.partitioning.candidates]
    ['onednn']
    """
    everyone = [*candidates, *(c for seed in seeds for c in seed.candidates)]
    pool = CandidatePool(graph, everyone, costs, tolerance)
    most_above = (1 + tolerance) * (1 + tolerance / 2)
    stop = should_stop or (lambda: False)
    seeded = _in_turns(seeds, len(candidates))
    rounds = expanded = 0

    def evaluate(positions: Sequence[int]) -> bool:
        missing = [p for p in positions if not pool.measured[p]]
        for begin in range(0, len(missing), batch_size):
            if stop() or not pool.evaluate(missing[begin : begin + batch_size]):
                return False
        return True

    def settled(cover: Cover) -> Cover | None:
        """The best cover of what was measured, where none can be better by more than chance."""
        most = 1 + tolerance / 2
        if not tolerance or not cover.optimal:
            return None
        # Nothing costs less than the least, and that no more than this one: asked first, for what
        # is measured rarely covers the graph so well, and each of these is a shortest path.
        known = [p for p, measured in enumerate(pool.measured) if measured]
        found = None if pool.uncovered(known) else pool.cover(max_states, stop, only=known)
        if found is None or found.cost > most * cover.cost:
            return None
        least_sec = pool.least_sec(max_states, stop)
        return found if least_sec is not None and found.cost <= most * least_sec else None

    def cheapest() -> tuple[Cover, list[int]] | None:
        """The cover that is the best one by what is known, and the positions of those of its
        candidates that are not measured: a round."""
        nonlocal rounds, expanded
        pool.refresh()
        cover = pool.cover(max_states, stop)
        if cover is None:
            return None
        rounds, expanded = rounds + 1, expanded + cover.expanded
        pending = [p for p in cover.positions if not pool.measured[p]]
        if on_round is not None:
            on_round(SearchProgress(rounds, pool.evaluated, len(pending), cover.cost))
        decided = settled(cover) if pending else None
        # What stands among equals depends on their order, so those that come first are asked, too.
        return (cover, pending) if decided is None else (decided, pool.earlier(decided.positions))

    def outcome(cover: Cover, found: Partitioning | None, *, ended: bool) -> SearchResult:
        """What was found, the last round's cover being this one, and what is left that might be
        better."""
        # A cover that is only a good one says nothing of the best.
        likely_sec = cover.cost / most_above if cover.optimal else 0.0
        least_sec: float | None = likely_sec
        if tolerance:
            # Where the time is up there is that for a short look; nothing is measured for it.
            states = max_states if ended else min(max_states, _STATES_AT_THE_END)
            least_sec = pool.least_sec(states, lambda: False, surely=True)
            if ended:
                likely_sec = pool.least_sec(states, lambda: False) or likely_sec
        least_sec = min(least_sec or 0.0, likely_sec)
        counts = pool.evaluated, rounds, expanded
        return SearchResult(found, ended and cover.optimal, least_sec, likely_sec, *counts)

    asked, best = seeded, None

    def wanted(peek: Peek, expect: Expect) -> Wanted | None:
        """What the round waits for; where it need not wait any longer, what the next one does."""
        nonlocal asked, best
        while True:
            missing = [p for p in asked if not pool.measured[p]]
            missing = [p for p in missing if peek(pool.candidates[p]) is None]
            if missing:
                offered = foreseen(asked, peek, expect)
                return Wanted(*((pool.candidates[p] for p in g) for g in (missing, offered)))
            best = cheapest() if evaluate(asked) else None
            if best is None or not best[1]:
                return None
            asked = best[1]

    def foreseen(asked: Sequence[int], peek: Peek, expect: Expect) -> Iterator[int]:
        """What later rounds would ask for, if candidates cost what is expected; then the
        others, by what they are worth beside the last of these rounds."""
        supposed: dict[int, float] = {}
        fresh, path = [p for p in asked if not pool.measured[p]], tuple[int, ...]()
        for _ in range(_FORESEEN_ROUNDS):
            for p in fresh:
                seconds = peek(pool.candidates[p])
                supposed[p] = expect(pool.candidates[p]) if seconds is None else seconds
            values = [supposed.get(p, value) for p, value in enumerate(pool.values)]
            cover = pool.cover(max_states, stop, values=values)
            path = () if cover is None else cover.positions
            fresh = [p for p in path if not pool.measured[p] and p not in supposed]
            if not fresh:
                break
            yield from fresh
        yield from pool.others(list(supposed), path)

    if not stream(wanted):
        # Some of it was found out once more: a search in turn sees that alone.
        pool = CandidatePool(graph, everyone, costs, tolerance)
        best, rounds, expanded = None, 0, 0
    running = evaluate(seeded)
    while True:
        best = best or cheapest()
        if best is None:
            if pool.rescue(last_resorts):
                continue
            raise _nothing_covers(graph, pool)
        cover, pending = best
        if not pending:
            return outcome(cover, pool.partitioning(cover), ended=True)
        running, best = running and evaluate(pending), None
        if not running:
            pool.refresh()
            found = _best_so_far(*(graph, pool, seeded, max_states, last_resorts), is_slow_to_build)
            return outcome(cover, found, ended=False)


def _in_turns(seeds: Sequence[Partitioning], begin: int) -> list[int]:
    """Positions of the seeds' candidates, which follow each other from ``begin`` on: the first
    seed's, then one of each other seed at a time."""
    ends = accumulate((len(seed.candidates) for seed in seeds), initial=begin)
    groups = [list(range(first, end)) for first, end in pairwise(ends)]
    turns = chain.from_iterable(zip_longest(*groups[1:]))
    return [*(groups[0] if groups else ()), *(p for p in turns if p is not None)]


def _best_so_far(
    graph: DataflowGraph,
    pool: CandidatePool,
    seeded: Sequence[int],
    max_states: int,
    last_resorts: Sequence[PartitionRule],
    is_slow_to_build: Callable[[Candidate], bool],
) -> Partitioning | None:
    """The best cover of what was measured, and of what seeds consist of where nothing else was.

    Other candidates that were not measured are left out: a guess that is too low would win. For
    those that are slow to build there is no time: they count only where nothing else covers the
    graph, and last resorts only where nothing does.
    """
    while True:
        guessed = [p for p in (*seeded, *pool.rescued) if not pool.measured[p]]
        for position in guessed:
            pool.values[position] = pool.costs.guess(pool.candidates[position])
        measured = [p for p, known in enumerate(pool.measured) if known]
        at_once = [p for p in guessed if not is_slow_to_build(pool.candidates[p])]
        for usable in ([*measured, *at_once], [*measured, *guessed]):
            cover = pool.cover(max_states, only=usable)
            if cover is not None:
                found = pool.partitioning(cover)
                return Partitioning(found.candidates, found.seconds, "stopped early")
        if not pool.rescue(last_resorts, [*measured, *guessed]):
            return None


def _nothing_covers(graph: DataflowGraph, pool: CandidatePool) -> SearchError:
    left = tuple(bits(pool.uncovered()))
    if not left:
        return SearchError("no set of usable candidates covers the graph", value=left)
    names = ", ".join(f"binding {index} ({graph.op_name(index)})" for index in left)
    return SearchError(f"no usable candidate covers {names}", value=left)
