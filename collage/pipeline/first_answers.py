"""Which partitionings are tried first, before anything is measured: one that runs, and soon."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.contract import is_native
from collage.candidate_costs import WorkloadCosts
from collage.cost.deadline import Deadline
from collage.end_to_end import Contender
from collage.pipeline.candidates import has_to_tune
from collage.pipeline.evaluated import by_promise, is_promising
from collage.pipeline.limits.answer_in_hand import AnswerInHand
from collage.pipeline.prefetch import Prefetch

_SECOND_SHARE = 0.75
"""Of the time for measuring: later than that nobody is tried out beside it."""


def first_answers(
    seeds: Sequence[Contender], costs: WorkloadCosts, prefetch: Prefetch, *, hurried: bool
) -> tuple[list[Contender], int]:
    """The most promising first; what can be compiled at once before what waits for something.

    That is a library that is still being compiled, or kernels that are yet to be chosen: for those
    of a network CUTLASS takes a minute, and there would be no answer until then. Second comes TVM
    alone, unless it is far behind: kernels that it fuses and libraries' calls are so different that
    where a guess is wrong of one of them it seldom is of both.

    To guess, each partition is made a function, which takes seconds where partitions are whole
    networks. Where these are missing, the one of the fewest partitions comes first: what a library
    takes as a whole is compiled at once, and seldom far behind. Where its library is not compiled
    yet it is tried beside the first that waits for nothing: TVM may well take longer for a network
    than a compiler takes for the rest of the library.

    Parameters
    ----------
    seeds : sequence of Contender
        At least one.
    costs : WorkloadCosts
        As far as they are known.
    prefetch : Prefetch
        Compiles libraries meanwhile.
    hurried : bool
        Whether there is no time to guess.

    Returns
    -------
    tuple of (list of Contender, int)
        Each partitioning once, and how many of them to try out together.
    """
    ranked = _by_size(seeds, prefetch) if hurried else by_promise(seeds, costs)
    distinct = {seed.partitioning.key(): seed for seed in reversed(ranked)}
    ranked = [seed for seed in ranked if distinct[seed.partitioning.key()] is seed]
    if hurried:
        waiting = [seed for seed in ranked[1:] if _waits_for_libraries(seed, prefetch)]
        if not waiting or _waits_for_libraries(ranked[0], prefetch):
            return ranked, 1
        ranked.remove(waiting[0])
        return [ranked[0], waiting[0], *ranked[1:]], 2
    if prefetch.is_under_way:
        ranked.sort(key=_needs_libraries)
    else:
        ranked.sort(key=lambda one: _waits_for_kernels(one, costs))
    first, *others = ranked
    promising = {id(one) for one in others if is_promising(one, first, costs)}
    others.sort(key=lambda one: _needs_libraries(one) or id(one) not in promising)
    return [first, *others], 1 + len(promising)


def find_beside(hand: AnswerInHand, ranked: Sequence[Contender], measuring: Deadline) -> None:
    """Have few tried out, beside the measuring, where each takes a core from candidates.

    One alone at first; then TVM alone, whatever was guessed of it: the answer in hand is all that
    there is when nothing else is compiled in time, and a guess may be wrong by a factor of twenty.

    Parameters
    ----------
    hand : AnswerInHand
        Tries them out.
    ranked : sequence of Contender
        As :func:`first_answers` gives them.
    measuring : Deadline
        When the measuring ends. The second is given up before.
    """
    hand.find(ranked)
    second = sorted(ranked[1:], key=_needs_libraries)[:1]
    end = Deadline.after(_SECOND_SHARE * measuring.left_sec())
    hand.widen(second, end.or_earlier(measuring))


def _by_size(contenders: Sequence[Contender], prefetch: Prefetch) -> list[Contender]:
    """Those of the fewest partitions first, but for those whose libraries are still compiled, or
    would choose kernels."""

    def key(contender: Contender) -> tuple[bool, int]:
        candidates = contender.partitioning.candidates
        waits = _waits_for_libraries(contender, prefetch)
        return waits or any(map(has_to_tune, candidates)), len(candidates)

    return sorted(contenders, key=key)


def _waits_for_libraries(contender: Contender, prefetch: Prefetch) -> bool:
    return prefetch.lacks([candidate.target for candidate in contender.partitioning.candidates])


def _waits_for_kernels(contender: Contender, costs: WorkloadCosts) -> bool:
    """Whether some are chosen first: of what was measured once, they were."""
    tuned = filter(has_to_tune, contender.partitioning.candidates)
    return any((cost := costs.recorded(one)) is None or not cost.is_valid for one in tuned)


def _needs_libraries(contender: Contender) -> bool:
    return not all(is_native(c.target) for c in contender.partitioning.candidates)
