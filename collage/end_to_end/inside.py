"""What each partition takes inside a running model, from the times of the model's calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from collage.backends.contract import is_native
from collage.cost.call_times import CallTime
from collage.passes.lower import partition_names
from collage.search.candidates import Candidate
from collage.search.partitioning import Partitioning


def seconds_inside(
    partitioning: Partitioning,
    calls: Sequence[CallTime],
    alone: Callable[[Candidate], float],
) -> dict[Candidate, float]:
    """Seconds that each partition took inside a whole model.

    A library's partition is one call, under its own name. The native compiler merges and renames
    what it compiles; its partitions between two calls of libraries are told apart by their order
    where they became as many calls as they are, and otherwise share what these calls took in
    proportion to what they take alone.

    Parameters
    ----------
    partitioning : Partitioning
        What was compiled, in executable order.
    calls : sequence of CallTime
        Those inside the model, in their order.
    alone : callable
        Seconds of a candidate, known or guessed.

    Returns
    -------
    dict[Candidate, float]
        Without inline candidates; empty where the calls are not those of these partitions.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> native, onednn = resolve_targets(["llvm", "onednn"])
    >>> parts = [Candidate(0b001, native), Candidate(0b010, onednn), Candidate(0b100, native)]
    >>> calls = [CallTime("exp", 2e-6), CallTime("onednn_0", 5e-6), CallTime("abs", 1e-6)]
    >>> found = seconds_inside(Partitioning(tuple(parts)), calls, lambda candidate: 1e-6)
    >>> [found[part] for part in parts]
    [2e-06, 5e-06, 1e-06]
    """
    names = partition_names(partitioning)
    libraries = {name for name, candidate in names.items() if not is_native(candidate.target)}
    parts = _stretches(list(names), libraries)
    times = _stretches([call.symbol for call in calls], libraries)
    candidates = list(names.values())
    found: dict[Candidate, float] = {}
    for members, places in _aligned(parts, times) or []:
        together = [candidates[member] for member in members]
        seconds = [calls[place].median_sec for place in places]
        found.update(zip(together, _shares(together, seconds, alone), strict=True))
    return found


Stretches = list[tuple[str, list[int]]]
"""The name of a library's partition with its position, or '' with those of native ones in a row."""


def _stretches(names: Sequence[str], libraries: set[str]) -> Stretches:
    keyed = enumerate(name if name in libraries else "" for name in names)
    grouped = groupby(keyed, key=lambda pair: pair[1])
    return [(key, [position for position, _ in pairs]) for key, pairs in grouped]


def _aligned(parts: Stretches, times: Stretches) -> list[tuple[list[int], list[int]]] | None:
    """Positions of partitions with those of their calls; None where libraries' calls are others.

    Partitions that became views are no calls, and what the compiler adds, such as the fill of a
    constant, belongs to no partition.
    """
    ours, theirs = dict(_placed(parts)), dict(_placed(times))
    if [key for key, _ in parts if key] != [key for key, _ in times if key]:
        return None
    return [(positions, theirs.get(place, [])) for place, positions in ours.items()]


def _placed(stretches: Stretches) -> Iterator[tuple[tuple[str, str], list[int]]]:
    """Each with its name, or a native one with the library's partition before it."""
    before = ""
    for key, positions in stretches:
        yield ((key, "") if key else ("", before)), positions
        before = key


def _shares(
    candidates: Sequence[Candidate], seconds: Sequence[float], alone: Callable[[Candidate], float]
) -> list[float]:
    if len(candidates) == len(seconds):
        return list(seconds)
    total_sec = math.fsum(seconds)
    weights = [alone(candidate) for candidate in candidates]
    whole = math.fsum(weights)
    if not 0.0 < whole < math.inf:
        return [total_sec / len(candidates)] * len(candidates)
    return [total_sec * weight / whole for weight in weights]
