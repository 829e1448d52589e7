"""What a user wants of who runs what: bindings that are closed to a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from collage.search.candidates import Candidate
from collage.search.dataflow import bits


@dataclass(frozen=True)
class Restrictions:
    """Which bindings a backend may not have, and why.

    Candidates that stay inline in ``main`` cost nothing and belong to no backend: they are always
    allowed.

    Attributes
    ----------
    closed : mapping of str to mapping of int to str
        By backend, the bindings that are closed to it, each with the reason.

    Examples
    --------
    >>> from collage.targets import resolve_targets
    >>> tvm, onednn = resolve_targets(["llvm", "onednn"])
    >>> banned = Restrictions({"onednn": {1: "ban exp=onednn"}})
    >>> banned.allow(Candidate(0b01, onednn)), banned.allow(Candidate(0b11, onednn))
    (True, False)
    >>> banned.reason(Candidate(0b11, onednn))
    'ban exp=onednn'
    """

    closed: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @cached_property
    def _masks(self) -> dict[str, int]:
        return {name: sum(1 << i for i in nodes) for name, nodes in self.closed.items()}

    def __bool__(self) -> bool:
        return any(self.closed.values())

    def closed_to(self, backend: str) -> int:
        """Bit mask of the bindings that a backend may not have."""
        return self._masks.get(backend, 0)

    def allow(self, candidate: Candidate) -> bool:
        """Whether a candidate may be used."""
        return candidate.inline or not candidate.nodes & self.closed_to(candidate.backend)

    def renumbered(self, numbers: Mapping[int, int]) -> Restrictions:
        """The same for a graph that has other numbers; bindings without one are left out.

        Parameters
        ----------
        numbers : mapping of int to int
            By index here, the one there.

        Examples
        --------
        >>> Restrictions({"onednn": {1: "banned", 2: "banned"}}).renumbered({1: 5}).closed
        {'onednn': {5: 'banned'}}
        """
        return Restrictions(
            {
                name: {numbers[index]: why for index, why in nodes.items() if index in numbers}
                for name, nodes in self.closed.items()
            }
        )

    def reason(self, candidate: Candidate) -> str:
        """Why a candidate may not be used; empty where it may."""
        if self.allow(candidate):
            return ""
        first = next(bits(candidate.nodes & self.closed_to(candidate.backend)))
        return self.closed[candidate.backend][first]


UNRESTRICTED = Restrictions()
"""Every backend may have whatever its patterns take."""
