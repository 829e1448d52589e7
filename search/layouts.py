"""Layouts as a decision of the search: where a tensor may be converted, and is not if nobody cuts.

Between a tensor and each of its readers stand two conversions that undo each other: one to another
layout, and one back. Where a partition border runs before both or behind both, the tensor there is
as it was; where it runs between them, it has the other layout. So which layout a tensor at a border
has is which candidates hold its conversions, and whoever chooses the cheapest cover chooses layouts
with it. Conversions that nobody takes along are partitions of their own, whose cost is measured;
one for several readers converts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import tvm
from tvm import relax

from collage.search.bindings import used_vars
from collage.search.dataflow import DataflowGraph, bits
from collage.search.restrictions import Restrictions
from collage.search.seam import Seam

SeamVars = tuple[relax.Var, tuple[tuple[relax.Var, relax.Var], ...]]
"""A tensor, and by reader its conversion and the one back."""


class LayoutGraph(DataflowGraph):
    """A graph with conversions between its bindings.

    Make one with :meth:`between`. Whoever holds both conversions for a reader computes neither.

    Examples
    --------
    A tensor with one reader; a partition that holds both conversions need not compute any, and the
    reader's operand is the tensor itself:

    >>> from collage.search.seam import Seam
    >>> graph = LayoutGraph.from_seams([[], [0], [1], [2]], [Seam(0, (1,), (2,), (3,))])
    >>> list(bits(graph.idle(0b0110))), dict(graph.aliases(0b0110))
    ([1, 2], {2: 0})
    >>> list(bits(graph.idle(0b0011))), list(bits(graph.idle(0b1100)))
    ([], [])
    """

    _plain: DataflowGraph | None = None

    @classmethod
    def between(
        cls, plain: DataflowGraph, mod: tvm.IRModule, seams: Sequence[SeamVars]
    ) -> LayoutGraph:
        """The graph of a module that has conversions besides what another has.

        Parameters
        ----------
        plain : DataflowGraph
            Without them; bindings that both have define the same variables.
        mod : tvm.IRModule
            With them.
        seams : sequence of tuple
            The variables of each tensor and its conversions.

        Returns
        -------
        LayoutGraph
            Of ``main``.
        """
        found = cls.from_function(mod["main"], mod)
        assert isinstance(found, LayoutGraph)
        index = found.index_of
        made = []
        for tensor, pairs in seams:
            there, back = zip(*sorted((index(t), index(b)) for t, b in pairs), strict=True)
            readers = tuple(next(bits(found.succs(number))) for number in back)
            made.append(Seam(index(tensor), there, back, readers))
        found.seams = tuple(sorted(made, key=lambda seam: seam.tensor))
        found._plain = plain
        return found

    @classmethod
    def from_seams(cls, uses: Sequence[Sequence[int]], seams: Sequence[Seam]) -> LayoutGraph:
        """A graph with no function behind it, to try a search on a table of costs.

        Parameters
        ----------
        uses : sequence of sequence of int
            As :meth:`from_uses` takes them, conversions included.
        seams : sequence of Seam
            Which those are.

        Returns
        -------
        LayoutGraph
            It has no bindings.
        """
        found = cls.from_uses(uses)
        assert isinstance(found, LayoutGraph)
        found.seams = tuple(seams)
        source = {number: seam.tensor for seam in seams for number in bits(seam.mask)}
        kept = [index for index in range(len(uses)) if index not in source]
        place = {index: number for number, index in enumerate(kept)}
        found._plain = DataflowGraph.from_uses(
            [[place[source.get(used, used)] for used in uses[index]] for index in kept]
        )
        found.numbers = place_of = {number: index for index, number in place.items()}
        assert len(place_of) == len(kept)
        return found

    @property
    def plain(self) -> DataflowGraph:
        return self if self._plain is None else self._plain

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """By index in the plain graph, the index here."""
        return {n: self.index_of(one.var) for n, one in enumerate(self.plain.bindings)}

    def on_plain(self, restrictions: Restrictions) -> Restrictions:
        """Restrictions of this graph as those of the plain one."""
        return restrictions.renumbered({there: here for here, there in self.numbers.items()})

    @cached_property
    def conversions(self) -> int:
        """Bit mask of all conversions."""
        return sum(seam.mask for seam in self.seams)

    def with_numbers_of(self, nodes: int) -> int:
        """A node set of the plain graph in this one's numbers.

        Parameters
        ----------
        nodes : int
            Bit mask.

        Returns
        -------
        int
            Without conversions.
        """
        return sum(1 << self.numbers[index] for index in bits(nodes))

    def aliases(self, nodes: int) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for seam in self.seams if nodes & self.conversions else ():
            found.update((b, seam.tensor) for t, b in seam.pairs() if nodes >> t & nodes >> b & 1)
            for some, others in ((seam.there, seam.back), (seam.back, seam.there)):
                pairs = zip(some, others, strict=True)
                alone = [one for one, other in pairs if nodes >> one & ~(nodes >> other) & 1]
                found.update(dict.fromkeys(alone[1:], alone[0]) if alone else {})
        for seam in self._read_twice:
            # Converted back by others, or not at all: it is the same tensor.
            pairs = zip(seam.back, seam.readers, strict=True)
            taken = [b for b, reader in pairs if nodes >> reader & 1 and not nodes >> b & 1]
            found.update(dict.fromkeys(taken[1:], taken[0]) if taken else {})
        return found

    @cached_property
    def _read_twice(self) -> tuple[Seam, ...]:
        return tuple(seam for seam in self.seams if len(seam.back) > 1)

    def idle(self, nodes: int) -> int:
        found = sum(1 << index for index in self.aliases(nodes)) & nodes
        for seam in self.seams if nodes & self.conversions else ():
            found |= sum(1 << t for t, b in seam.pairs() if nodes >> t & nodes >> b & 1)
        return found

    def users(self, index: int, nodes: int) -> int:
        found = self.succs(index)
        for alias, source in self.aliases(nodes).items():
            if source == index:
                found |= self.succs(alias)
        return found & ~self.idle(nodes)


def reads(graph: DataflowGraph, index: int, nodes: int) -> list[relax.Var]:
    """The variables that a binding uses where these nodes are one partition.

    Parameters
    ----------
    graph : DataflowGraph
        Whose binding it is.
    index : int
        The binding.
    nodes : int
        The partition's.

    Returns
    -------
    list of relax.Var
        In order of appearance; those of conversions that are undone are what was converted.
    """
    names = renamed(graph, nodes)
    return [names.get(var, var) for var in used_vars(graph.bindings[index].value)]


def renamed(graph: DataflowGraph, nodes: int) -> dict[relax.Var, relax.Var]:
    """By variable of a partition that has the value of another one, that one.

    Parameters
    ----------
    graph : DataflowGraph
        Whose nodes they are.
    nodes : int
        The partition's.

    Returns
    -------
    dict
        Empty unless the partition holds conversions.
    """
    bindings = graph.bindings
    return {bindings[a].var: bindings[b].var for a, b in graph.aliases(nodes).items()}


def with_numbers_of(graph: DataflowGraph, restrictions: Restrictions) -> Restrictions:
    """Restrictions of a graph's plain one as its own; conversions are open to everybody.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings they are for then.
    restrictions : Restrictions
        In the numbers of ``graph.plain``.

    Returns
    -------
    Restrictions
        The same where the graph is its own plain one.
    """
    if not isinstance(graph, LayoutGraph):
        return restrictions
    return restrictions.renumbered(graph.numbers)
