"""Joining adjacent candidates into larger ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace

from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, OpKind, bits
from collage.search.rules._base import Found, PartitionRule, distinct
from collage.search.rules.host import is_host
from collage.search.subgraph import SubGraph, SubGraphLimits, union_of

WIDE = 2
"""An operator with more neighbours than this on one side is wide."""


class Joiner(ABC):
    """Says which unions of adjacent candidates make sense (a combiner rule of the RFC).

    Examples
    --------
    Unions of two bindings at most:

    >>> class JoinPairs(Joiner):
    ...     def allows(self, graph, nodes):
    ...         return nodes.bit_count() <= 2
    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> JoinPairs().allows(chain, 0b011), JoinPairs().allows(chain, 0b111)
    (True, False)
    """

    def beside(self, graph: DataflowGraph, nodes: int) -> int:
        """Where a union may grow to: by default to whatever it uses or is used by.

        Parameters
        ----------
        graph : DataflowGraph
            Whose bindings are joined.
        nodes : int
            Bit mask of the union so far.

        Returns
        -------
        int
            Bit mask, disjoint from ``nodes``.
        """
        return (union_of(graph.preds, nodes) | union_of(graph.succs, nodes)) & ~nodes

    @abstractmethod
    def allows(self, graph: DataflowGraph, nodes: int) -> bool:
        """Whether a union may be one partition.

        Parameters
        ----------
        graph : DataflowGraph
            Whose bindings are joined.
        nodes : int
            Bit mask of a connected set. That it is convex is seen to.

        Returns
        -------
        bool
            Only of the union's size and kinds; whether it is connected is asked elsewhere.
        """


class JoinByKind(Joiner):
    """TVM's fusion rules on operator kinds, for one kernel with one output.

    - one convolution, matmul, pooling … with element-wise and broadcast operators after it,
      and whatever is injective on the side;
    - element-wise, broadcast and injective operators among themselves;
    - the same before a reduction.

    Examples
    --------
    Elementwise operators may be one kernel, which has one output:

    >>> fork = DataflowGraph.from_uses([[], [0], [0]])
    >>> JoinByKind().allows(fork, 0b111)
    False
    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> JoinByKind().allows(chain, 0b111)
    True
    """

    def beside(self, graph: DataflowGraph, nodes: int) -> int:
        """Only to what the union uses, so that each is grown from its one output."""
        return union_of(graph.preds, nodes) & ~nodes

    def allows(self, graph: DataflowGraph, nodes: int) -> bool:
        """Whether TVM would fuse a union into one kernel."""
        sub = SubGraph(graph, nodes)
        if sub.exit.bit_count() != 1 or _splits_a_side(graph, nodes):
            return False
        kinds = {index: _fusion_kind(graph, index) for index in bits(nodes)}
        anchors = [
            index
            for index, kind in kinds.items()
            if kind in (OpKind.OUT_EWISE_FUSABLE, OpKind.COMM_REDUCE)
        ]
        if any(kind in (OpKind.OPAQUE, OpKind.TUPLE, OpKind.HOST) for kind in kinds.values()):
            return False
        if not anchors:
            return True
        if len(anchors) > 1:
            return False
        anchor = anchors[0]
        if kinds[anchor] is OpKind.COMM_REDUCE:
            return nodes >> anchor == 1
        after = graph.descendants(anchor) & nodes
        return not graph.ancestors(anchor) & nodes and all(
            kinds[index] <= OpKind.BROADCAST for index in bits(after)
        )


class JoinAdjacent(Joiner):
    """Adjacent composites of a backend with graph granularity.

    A wide operator is not joined with some of its neighbours on a side, see :func:`_splits_a_side`.

    Examples
    --------
    Of three operators that read one value, all or none are joined with it:

    >>> wide = DataflowGraph.from_uses([[], [0], [0], [0]])
    >>> JoinAdjacent().allows(wide, 0b0011), JoinAdjacent().allows(wide, 0b1111)
    (False, True)
    """

    def allows(self, graph: DataflowGraph, nodes: int) -> bool:
        """Whether a union holds all or none of a wide operator's neighbours on each side."""
        return not _splits_a_side(graph, nodes)


def _splits_a_side(graph: DataflowGraph, nodes: int) -> bool:
    """Whether a set holds some of a wide operator's neighbours on one side but not all of them.

    All choices among the branches of a concat, or the users of one value, would be about as good as
    each other, and far too many; larger regions and fusion groups hold all of them.
    """
    for index in bits(nodes):
        for beside in (graph.preds(index), graph.succs(index)):
            if beside.bit_count() > WIDE and beside & nodes and beside & ~nodes:
                return True
    return False


@dataclass(frozen=True)
class CombineLimits:
    """How far to combine.

    Attributes
    ----------
    max_parts : int
        Candidates joined into one.
    max_per_seed : int
        Unions grown from one candidate; later ones are dropped.
    sub_graph : SubGraphLimits
        What every union must keep within.

    Examples
    --------
    >>> CombineLimits(max_parts=6, max_per_seed=24).sub_graph.allow_taps
    True
    """

    max_parts: int
    max_per_seed: int
    sub_graph: SubGraphLimits = field(default_factory=SubGraphLimits)


class CombineRule(PartitionRule):
    """The unions of adjacent candidates of a rule, grown breadth first one candidate at a time.

    Time is linear in the number of unions tried, at most ``max_per_seed`` times the number of
    neighbours of each.

    Parameters
    ----------
    rule : PartitionRule
        Finds what is joined; of one target.
    joiner : Joiner
        Says which unions make sense.
    limits : CombineLimits
        How far to combine.
    name : str
        For explanations.

    Examples
    --------
    >>> from collage.search.rules import OpKindRule
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> limits = CombineLimits(max_parts=2, max_per_seed=8)
    >>> rule = CombineRule(OpKindRule(tvm), JoinByKind(), limits, "pairs")
    >>> chain = DataflowGraph.from_uses([[], [0], [1]])
    >>> [list(bits(candidate.nodes)) for candidate in rule.find(chain).candidates]
    [[0, 1], [1, 2]]
    """

    def __init__(
        self, rule: PartitionRule, joiner: Joiner, limits: CombineLimits, name: str
    ) -> None:
        self.rule = rule
        self.joiner = joiner
        self.limits = limits
        self.name = name

    def find(self, graph: DataflowGraph) -> Found:
        found = self.rule.find(graph)
        return Found(
            distinct(join_adjacent(graph, found.candidates, self.joiner, self.limits, self.name)),
            found.rejections,
        )


def join_adjacent(
    graph: DataflowGraph,
    parts: tuple[Candidate, ...],
    joiner: Joiner,
    limits: CombineLimits,
    name: str,
) -> list[Candidate]:
    """All unions of at least two adjacent candidates, as :class:`CombineRule` makes them.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the candidates hold.
    parts : tuple of Candidate
        What is joined; of one target.
    joiner : Joiner
        Says which unions make sense.
    limits : CombineLimits
        How far to combine.
    name : str
        The unions' rule, for explanations.

    Returns
    -------
    list of Candidate
        The smallest of each seed first.
    """
    owners: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        for index in bits(part.nodes):
            owners.setdefault(index, []).append(number)
    seen: set[int] = {part.nodes for part in parts}
    unions: list[Candidate] = []
    for seed in range(len(parts)):
        grown = 0
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(parts[seed].nodes, (seed,))])
        while queue and grown < limits.max_per_seed:
            graph.step()
            nodes, members = queue.popleft()
            if len(members) == limits.max_parts:
                break
            beside = {n for i in bits(joiner.beside(graph, nodes)) for n in owners.get(i, ())}
            for number in sorted(beside):
                if grown == limits.max_per_seed:
                    break
                union = nodes | parts[number].nodes
                if parts[number].nodes & nodes or union in seen:
                    continue
                if not SubGraph(graph, union).is_valid(limits.sub_graph):
                    continue
                if not joiner.allows(graph, union):
                    continue
                seen.add(union)
                grown += 1
                chosen = (*members, number)
                queue.append((union, chosen))
                unions.append(join([parts[n] for n in chosen], graph, name))
    return unions


def join(parts: list[Candidate], graph: DataflowGraph, name: str) -> Candidate:
    """One candidate of disjoint ones, its composites in topological order.

    Parameters
    ----------
    parts : list of Candidate
        At least one; all of one target.
    graph : DataflowGraph
        Whose bindings they hold.
    name : str
        The joined candidate's rule, for explanations.

    Returns
    -------
    Candidate
        Over the bindings of all parts.
    """
    composites = [composite for part in parts for composite in part.composites]
    # A composite is convex and has one output, its last node: those nodes are in order.
    composites.sort(key=lambda composite: composite.nodes.bit_length())
    nodes = 0
    for part in parts:
        nodes |= part.nodes
    return replace(parts[0], nodes=nodes, composites=tuple(composites), rule=name)


def _fusion_kind(graph: DataflowGraph, index: int) -> OpKind:
    if graph.op_name(index) == "tuple_get_item":
        return OpKind.INJECTIVE
    return OpKind.OPAQUE if is_host(graph, index) else graph.op_kind(index)
