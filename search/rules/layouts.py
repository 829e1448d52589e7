"""Candidates whose tensors at their borders have another layout, from those that have not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from collage.backends.contract import BackendTarget, TakesLayouts, TargetSet
from collage.search.candidates import Candidate, Composite
from collage.search.dataflow import bits
from collage.search.layouts import LayoutGraph
from collage.search.partitioning import Partitioning, make_partitioning
from collage.search.rules._base import Found, PartitionRule, Rejection, distinct
from collage.search.rules.default import MatchRule
from collage.search.seam import Seam

LAYOUTS = "layouts"
"""Name of the rule in candidates that only convert."""

_MOST_READERS = 6
"""Up to which one conversion may serve any of a tensor's readers, whatever the others have."""


class LayoutsRule(PartitionRule):
    """A rule's candidates in a graph with conversions, as they were and in the other layout.

    Each has its inputs in the other layout, its outputs, both or neither, as far as its backend
    takes that (:class:`~collage.backends.contract.TakesLayouts`). Besides, for each tensor and
    reader: both conversions inline, which is none; and for each set of a tensor's readers one
    conversion as a partition.

    Parameters
    ----------
    rule : PartitionRule
        Finds candidates in the graph without conversions.
    targets : TargetSet
        Who may convert where no partition takes conversions along.

    Examples
    --------
    A convolution and a softmax, between which the tensor may be converted: bindings 1 and 2.

    >>> from collage.passes import with_seams
    >>> from collage.search.dataflow import DataflowGraph
    >>> from collage.search.rules import MatchRule
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import constant, graph
    >>> from tvm.relax import op
    >>> def build(emit, x):
    ...     y = emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
    ...     return op.nn.softmax(y, axis=1)
    >>> mod = graph([(1, 8, 32, 32)], build)
    >>> _, dataflow = with_seams(mod, DataflowGraph.from_function(mod["main"]))
    >>> targets = resolve_targets(["llvm", "onednn"])
    >>> found = LayoutsRule(MatchRule(targets.external[0]), targets).find(dataflow)
    >>> [list(bits(one.nodes)) for one in found.candidates if one.rule != LAYOUTS]
    [[0], [0, 1], [3], [2, 3]]
    >>> [(list(bits(one.nodes)), one.inline) for one in found.candidates if one.rule == LAYOUTS][:2]
    [([1, 2], True), ([1], False)]
    """

    def __init__(self, rule: PartitionRule, targets: TargetSet) -> None:
        self.rule = rule
        self.targets = targets

    def find(self, graph: LayoutGraph) -> Found:  # type: ignore[override]
        found = self.rule.find(graph.plain)
        variants = _Variants(graph)
        candidates = [one for c in found.candidates for one in variants.of(c)]
        nodes = {graph.with_numbers_of(one.nodes) for one in found.candidates}
        for seam in graph.seams:
            candidates += [_undone(pair, self.targets.native) for pair in seam.undone]
            candidates += [
                one for some in _apart(seam, nodes) for one in self._converting(some, variants)
            ]
        return Found(distinct(candidates), _renumbered(graph, found.rejections))

    def _converting(self, nodes: int, variants: _Variants) -> Iterator[Candidate]:
        """Partitions that convert and do nothing else."""
        yield Candidate(nodes, self.targets.native, rule=LAYOUTS)
        first = next(bits(nodes))
        for target in self.targets.external:
            name = variants.names(target).get(first)
            if name is not None and isinstance(target.implementation, TakesLayouts):
                yield Candidate(nodes, target, (Composite(name, 1 << first),), LAYOUTS)


def _undone(pair: int, native: BackendTarget) -> Candidate:
    """Both conversions for a reader, which are none."""
    return Candidate(pair, native, rule=LAYOUTS, inline=True)


def _apart(seam: Seam, candidates: Iterable[int]) -> Iterator[int]:
    """The conversions of a tensor that one partition may hold which does nothing else."""
    readers = sum(1 << reader for reader in seam.readers)
    for some in _reader_sets(seam, readers, candidates):
        yield seam.there_for(some)
        yield seam.back_for(some)


def _reader_sets(seam: Seam, readers: int, candidates: Iterable[int]) -> Iterator[int]:
    """The readers of a tensor that one conversion may serve."""
    if len(seam.readers) <= _MOST_READERS:
        for count in range(1, len(seam.readers) + 1):
            for some in combinations(seam.readers, count):
                yield sum(1 << reader for reader in some)
        return
    # Whoever reads it, whoever else reads what one of the candidates makes, each alone, and all.
    sets = [1 << reader for reader in seam.readers] + [readers]
    for nodes in candidates:
        sets += [nodes & readers, ~nodes & readers] if nodes & readers else []
    yield from (some for some in dict.fromkeys(sets) if some)


def lifted(graph: LayoutGraph, partitioning: Partitioning) -> Partitioning:
    """A partitioning of the graph without conversions as one of the graph with them.

    Parameters
    ----------
    graph : LayoutGraph
        Whose plain graph is partitioned.
    partitioning : Partitioning
        Of that.

    Returns
    -------
    Partitioning
        The same partitions: every tensor has the layout that it had.

    Examples
    --------
    >>> from collage.search.dataflow import DataflowGraph
    >>> from collage.targets import resolve_targets
    >>> (tvm,) = resolve_targets(["llvm"])
    >>> graph = LayoutGraph.from_seams([[], [0], [1], [2]], [Seam(0, (1,), (2,), (3,))])
    >>> apart = Partitioning((Candidate(0b01, tvm), Candidate(0b10, tvm)))
    >>> [(list(bits(c.nodes)), c.inline) for c in lifted(graph, apart).candidates]
    [([0], False), ([1, 2], True), ([3], False)]
    """
    variants = _Variants(graph)
    parts = [variants.same(candidate) for candidate in partitioning.candidates]
    held = sum(part.nodes for part in parts)
    native = next((c.target for c in parts if c.inline), parts[0].target if parts else None)
    for pair in (pair for seam in graph.seams for pair in seam.undone if not pair & held):
        assert native is not None
        parts.append(_undone(pair, native))
    return make_partitioning(graph, parts, partitioning.seconds, partitioning.origin)


def _renumbered(graph: LayoutGraph, rejections: Sequence[Rejection]) -> tuple[Rejection, ...]:
    return tuple(replace(one, node=graph.numbers[one.node]) for one in rejections)


class _Variants:
    """The candidates of one graph with conversions."""

    def __init__(self, graph: LayoutGraph) -> None:
        self._graph = graph
        self._conversions: dict[BackendTarget, dict[int, str]] = {}

    def same(self, candidate: Candidate) -> Candidate:
        """The candidate with every tensor as it was."""
        graph = self._graph
        nodes = graph.with_numbers_of(candidate.nodes)
        inside = sum(
            seam.there_for(nodes) | seam.back_for(nodes)
            for seam in graph.seams
            if nodes >> seam.tensor & 1
        )
        composites = tuple(
            replace(one, nodes=graph.with_numbers_of(one.nodes)) for one in candidate.composites
        )
        return replace(candidate, nodes=nodes | inside, composites=composites)

    def of(self, candidate: Candidate) -> Iterator[Candidate]:
        """The candidate as it was, and with other layouts at its borders."""
        same = self.same(candidate)
        yield same
        if candidate.inline or not self._takes(same):
            return
        entering = [s for s in self._graph.seams if _is_read(s, same.nodes)]
        leaving = [s for s in self._graph.seams if _leaves(s, same.nodes)]
        for before, behind in ((entering, []), ([], leaving), (entering, leaving)):
            if before or behind:
                turned = self._turned(same, before, behind)
                if turned is not None:
                    yield turned

    def _turned(
        self, same: Candidate, before: Sequence[Seam], behind: Sequence[Seam]
    ) -> Candidate | None:
        entering = [seam.back_for(same.nodes) for seam in before]
        leaving = [seam.there_for(~same.nodes) for seam in behind]
        nodes = same.nodes | sum(entering) | sum(leaving)
        first, last = ([next(bits(some)) for some in sets] for sets in (entering, leaving))
        if not same.composites:
            return replace(same, nodes=nodes)
        names = self.names(same.target)
        if any(index not in names for index in (*first, *last)):
            return None
        composites = (
            *(Composite(names[index], 1 << index) for index in first),
            *same.composites,
            *(Composite(names[index], 1 << index) for index in last),
        )
        return replace(same, nodes=nodes, composites=composites)

    def _takes(self, same: Candidate) -> bool:
        backend = same.target.implementation
        if not isinstance(backend, TakesLayouts):
            return False
        graph = self._graph
        nodes = same.nodes & ~graph.conversions
        operators = [graph.bindings[index].value for index in bits(nodes)]
        with same.target.scope:
            return backend.takes_other_layout(operators, same.target)

    def names(self, target: BackendTarget) -> dict[int, str]:
        """By conversion, the pattern of a target that takes it."""
        if target not in self._conversions:
            found = MatchRule(target).find(self._graph).candidates
            single = {one.nodes: one.composites[0].name for one in found if one.composites}
            names = {index: single.get(1 << index) for index in bits(self._graph.conversions)}
            self._conversions[target] = {i: name for i, name in names.items() if name}
        return self._conversions[target]


def _is_read(seam: Seam, nodes: int) -> bool:
    """Whether a tensor from outside is read by a node set."""
    return not nodes >> seam.tensor & 1 and any(nodes >> reader & 1 for reader in seam.readers)


def _leaves(seam: Seam, nodes: int) -> bool:
    """Whether a tensor that a node set makes is read outside."""
    return bool(nodes >> seam.tensor & 1) and any(not nodes >> r & 1 for r in seam.readers)
