"""How fast candidates have been, and what others take by it: at the least, and most likely."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from statistics import median

import tvm
from tvm import relax

from collage.backends.contract import BackendTarget
from collage.backends.relax.static_shape import tensor_shape
from collage.backends.relax.tensor_spec import TensorSpec
from collage.cost.base import Cost
from collage.cost.workload.describe import call_flops
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.op_kinds import OpKind
from collage.search.subgraph import SubGraph

_PEAK_MARGIN = 1.25
"""A candidate may be faster per operation than all before it, but by no more than this: the
device's peak is near what whole networks reach. By more, and the search would be inexact."""

_ENOUGH = 8
"""Workloads of one kind on one target that tell what others of the kind take."""

_LUCK = 0.9
"""By so much of what is typical of its kind one that was not measured may be faster for its size,
and still is not looked for."""

_EITHER = (OpKind.ELEMWISE, OpKind.BROADCAST)


@dataclass(frozen=True)
class _Work:
    """What a set of bindings does: multiply-adds, bytes that cross its border, and of what kind:
    the operator that computes most, or the last one where none multiplies."""

    flops: int
    bytes: int
    kind: str


class _Kind:
    """Work of one kind on one target, and how long it took.

    A roofline, but of what was seen: each work takes so many times as long as it would at the best
    rates of computing and of moving bytes that any of them reached. A lucky moment moves the roof,
    and with it all these ratios, but hardly what the typical one says of others.
    """

    def __init__(self) -> None:
        self._seconds: dict[_Work, float] = {}
        self._typical: float | None = None

    def copied(self) -> _Kind:
        same = _Kind()
        same._seconds = dict(self._seconds)
        return same

    def note(self, work: _Work, seconds: float) -> None:
        self._seconds[work] = min(seconds, self._seconds.get(work, seconds))
        self._typical = None

    def likely_sec(self, work: _Work) -> float:
        if len(self._seconds) < _ENOUGH:
            return 0.0
        if self._typical is None:
            self._flops_per_sec = max(w.flops / sec for w, sec in self._seconds.items())
            self._bytes_per_sec = max(w.bytes / sec for w, sec in self._seconds.items())
            ratios = [s / self._roof_sec(w) for w, s in self._seconds.items() if self._roof_sec(w)]
            self._typical = median(ratios) if ratios else 0.0
        return _LUCK * self._typical * self._roof_sec(work)

    def _roof_sec(self, work: _Work) -> float:
        # Where none of them computed, or moved anything, they say nothing of what does.
        computing_sec = work.flops / self._flops_per_sec if self._flops_per_sec else 0.0
        return max(computing_sec, work.bytes / self._bytes_per_sec if self._bytes_per_sec else 0.0)


class Rates:
    """The best rates of all candidates whose costs are known.

    Parameters
    ----------
    graph : DataflowGraph
        What candidates are of.

    Attributes
    ----------
    best_flops_per_sec : float
        0 where nothing was measured.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._flops = [_multiply_adds(binding.value) for binding in graph.bindings]
        self._work: dict[int, _Work] = {}
        self._elsewhere: dict[int, dict[relax.Expr, int]] = {}
        self._kinds: defaultdict[tuple[BackendTarget, str], _Kind] = defaultdict(_Kind)
        self.best_flops_per_sec = 0.0

    def saved(self) -> Rates:
        """What is known now, whatever is learned later."""
        same = copy(self)
        same._kinds = defaultdict(_Kind, {key: kind.copied() for key, kind in self._kinds.items()})
        return same

    @property
    def assumed_flops_per_sec(self) -> float:
        """The rate that no candidate is held to exceed; 0 where nothing was measured."""
        return _PEAK_MARGIN * self.best_flops_per_sec

    def note(self, candidate: Candidate, cost: Cost) -> None:
        """Learn from a candidate's cost.

        Parameters
        ----------
        candidate : Candidate
            What was measured.
        cost : Cost
            Ignored where it has no samples.
        """
        if cost.is_valid and cost.samples_sec:
            work, least_sec = self._work_of(candidate.nodes), min(cost.samples_sec)
            self.best_flops_per_sec = max(self.best_flops_per_sec, work.flops / least_sec)
            self._kinds[candidate.target, work.kind].note(work, least_sec)

    def least_sec(self, candidate: Candidate) -> float:
        """Its multiply-adds at the assumed rate; 0 where that is not known."""
        if not self.best_flops_per_sec:
            return 0.0
        return self._work_of(candidate.nodes).flops / self.assumed_flops_per_sec

    def likely_sec(self, candidate: Candidate) -> float:
        """What it hardly takes less than, if it is like others of its kind on its target; 0 where
        too few of them are known."""
        work = self._work_of(candidate.nodes)
        return self._kinds[candidate.target, work.kind].likely_sec(work)

    def _work_of(self, nodes: int) -> _Work:
        if nodes not in self._work:
            flops = {index: self._flops[index] for index in bits(nodes)}
            most = max(flops, key=lambda index: (flops[index], index))
            kind = self._graph.op_name(most)
            if not flops[most] and self._graph.op_kind(most) in _EITHER:
                kind = "element-wise"
            self._work[nodes] = _Work(sum(flops.values()), self._bytes(nodes), kind)
        return self._work[nodes]

    def _bytes(self, nodes: int) -> int:
        """Of what is read from outside, and of what is read there or returned."""
        part = SubGraph(self._graph, nodes)
        bindings = self._graph.bindings
        inner = sum(_size(bindings[index].var) for index in bits(part.input | part.exit))
        outer: dict[relax.Expr, int] = {}
        for index in bits(nodes):
            outer.update(self._from_elsewhere(index))
        return inner + sum(outer.values())

    def _from_elsewhere(self, index: int) -> dict[relax.Expr, int]:
        """The parameters and constants that a binding reads, with their sizes in bytes."""
        if index not in self._elsewhere:
            found: dict[relax.Expr, int] = {}

            def visit(expr: relax.Expr) -> None:
                is_outer = isinstance(expr, relax.Var) and self._graph.find(expr) is None
                if is_outer or isinstance(expr, tvm.ir.GenericConst):
                    found[expr] = _size(expr)

            relax.analysis.post_order_visit(self._graph.bindings[index].value, visit)
            self._elsewhere[index] = found
        return self._elsewhere[index]


def _size(expr: relax.Expr) -> int:
    """Bytes of a tensor; 0 of what is none, or of open extents."""
    return 0 if tensor_shape(expr) is None else TensorSpec.of(expr).bytes


def _multiply_adds(value: relax.Expr) -> int:
    """Floating-point operations of convolutions and matrix products; others count nothing, since
    memory, not arithmetic, bounds them."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        name = str(value.op.name)
        if name == "relax.matmul" or name.startswith("relax.nn.conv"):
            return call_flops(value)
    return 0
