"""What every partition rule is: a way to find candidates in a dataflow graph (tvm-rfcs 0062)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph


@dataclass(frozen=True)
class Rejection:
    """Why a pattern that matched is no candidate.

    Attributes
    ----------
    node : int
        Index of the match's root.
    backend : str
        Whose pattern it was.
    pattern : str
        Name of the pattern triple.
    reason : str
        One line a user can read.

    Examples
    --------
    >>> Rejection(3, "onednn", "onednn.conv2d", "dilated").reason
    'dilated'
    """

    node: int
    backend: str
    pattern: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What a rule found: candidates, and matches it had to turn down.

    Examples
    --------
    >>> Found(rejections=(Rejection(3, "onednn", "onednn.conv2d", "dilated"),)).candidates
    ()
    """

    candidates: tuple[Candidate, ...] = ()
    rejections: tuple[Rejection, ...] = ()


class PartitionRule(ABC):
    """Finds candidates; rules are built from rules.

    Examples
    --------
    A rule that has each binding stand alone on one target:

    >>> class Singles(PartitionRule):
    ...     def __init__(self, target):
    ...         self.target = target
    ...
    ...     def find(self, graph):
    ...         return Found(tuple(Candidate(1 << i, self.target) for i in range(len(graph))))
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> len(Singles(tvm).find(DataflowGraph.from_uses([[], [0]])).candidates)
    2
    """

    @abstractmethod
    def find(self, graph: DataflowGraph) -> Found:
        """All candidates of this rule in a fixed order; every one convex."""


def distinct(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Leave out candidates with the nodes and target of an earlier one."""
    seen: dict[tuple[int, int, bool], Candidate] = {}
    # Targets are few and shared: by identity, for their keys are text and slow to compare.
    canonical: dict[str, int] = {}
    number_of: dict[int, int] = {}
    for candidate in candidates:
        identity = id(candidate.target)
        if identity not in number_of:
            number_of[identity] = canonical.setdefault(candidate.target.key(), len(canonical))
        seen.setdefault((candidate.nodes, number_of[identity], candidate.inline), candidate)
    return tuple(seen.values())
