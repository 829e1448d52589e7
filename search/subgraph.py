"""Sub-graphs of a dataflow graph as bit sets, and what makes one valid (tvm-rfcs 0062)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tvm import relax

from collage.search.dataflow import DataflowGraph, bits


@dataclass(frozen=True)
class SubGraphLimits:
    """What a rule allows (``SubGraphConfig`` in the RFC); None stands for no limit.

    Attributes
    ----------
    max_nodes : int or None
        Bindings.
    max_outputs : int or None
        Bindings whose value is used outside.
    allow_taps : bool
        Whether a value may be used both inside and outside.

    Examples
    --------
    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> SubGraph(chain, 0b111).is_valid(SubGraphLimits(max_nodes=2))
    False
    """

    max_nodes: int | None = None
    max_outputs: int | None = None
    allow_taps: bool = True


@dataclass(frozen=True)
class SubGraph:
    """A set of a graph's bindings.

    Attributes
    ----------
    graph : DataflowGraph
        Whose bindings they are.
    nodes : int
        Bit mask of the members.

    Examples
    --------
    Between the two ends of a chain stands a binding that would have to run in between:

    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> SubGraph(chain, 0b101).is_convex, SubGraph(chain, 0b011).is_convex
    (False, True)
    """

    graph: DataflowGraph
    nodes: int

    def __len__(self) -> int:
        return self.nodes.bit_count()

    @cached_property
    def preds(self) -> int:
        """Everything that a member uses, members included."""
        return union_of(self.graph.preds, self.nodes)

    @cached_property
    def succs(self) -> int:
        """Everything that uses a member, members included."""
        return union_of(self.graph.succs, self.nodes)

    @property
    def input(self) -> int:
        """Bindings outside whose values are used inside."""
        return self.preds & ~self.nodes

    @property
    def output(self) -> int:
        """Bindings outside that use a value from inside."""
        return self.succs & ~self.nodes

    @cached_property
    def entry(self) -> int:
        """Members that use another binding's value from outside."""
        return _where(self.nodes, lambda i: bool(self.graph.preds(i) & ~self.nodes))

    @cached_property
    def exit(self) -> int:
        """Members whose value is used outside or returned: one output tensor each."""
        used = _where(self.nodes, lambda i: bool(self.graph.succs(i) & ~self.nodes))
        return used | (self.nodes & self.graph.outputs)

    @cached_property
    def is_convex(self) -> bool:
        """Whether no path leaves the set and comes back: only then can it run in one piece."""
        above = union_of(self.graph.ancestors, self.nodes)
        below = union_of(self.graph.descendants, self.nodes)
        return above & below & ~self.nodes == 0

    @property
    def takes_tuples(self) -> bool:
        """Whether a value from outside is a tuple, which no partition function takes."""
        return any(
            isinstance(self.graph.bindings[i].var.ty, relax.TupleType) for i in bits(self.input)
        )

    @property
    def has_taps(self) -> bool:
        """Whether a member's value is used both inside and outside."""
        return any(self.graph.succs(i) & self.nodes for i in bits(self.exit))

    def is_valid(self, limits: SubGraphLimits | None = None) -> bool:
        """Whether the set is non-empty, convex, and within limits."""
        limits = limits or SubGraphLimits()
        if not self.nodes or (limits.max_nodes is not None and len(self) > limits.max_nodes):
            return False
        if limits.max_outputs is not None and self.exit.bit_count() > limits.max_outputs:
            return False
        return self.is_convex and (limits.allow_taps or not self.has_taps)


def union_of(masks: Callable[[int], int], nodes: int) -> int:
    """The union over a node set of what a function gives for each node.

    Parameters
    ----------
    masks : callable
        A bit mask by index, for example :meth:`DataflowGraph.preds`.
    nodes : int
        Bit mask of the indices to ask for.

    Returns
    -------
    int
        Bit mask; 0 for no nodes.
    """
    found = 0
    for index in bits(nodes):
        found |= masks(index)
    return found


def _where(nodes: int, condition: Callable[[int], bool]) -> int:
    return sum(1 << index for index in bits(nodes) if condition(index))
