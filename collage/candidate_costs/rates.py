"""How many operations a second candidates have reached, and what others take at the least by it."""

from __future__ import annotations

import tvm
from tvm import relax

from collage.cost.base import Cost
from collage.cost.workload.describe import call_flops
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits

_PEAK_MARGIN = 1.25
"""A candidate may be faster per operation than all before it, but by no more than this: the
device's peak is near what whole networks reach. By more, and the search would be inexact."""


class Rates:
    """The best rate of all candidates whose costs are known.

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
        self._of_nodes = [_multiply_adds(binding.value) for binding in graph.bindings]
        self._flops: dict[int, int] = {}
        self.best_flops_per_sec = 0.0

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
            rate = self._flops_of(candidate) / min(cost.samples_sec)
            self.best_flops_per_sec = max(self.best_flops_per_sec, rate)

    def least_sec(self, candidate: Candidate) -> float:
        """Its multiply-adds at the assumed rate; 0 where that is not known."""
        if not self.best_flops_per_sec:
            return 0.0
        return self._flops_of(candidate) / self.assumed_flops_per_sec

    def _flops_of(self, candidate: Candidate) -> int:
        nodes = candidate.nodes
        if nodes not in self._flops:
            self._flops[nodes] = sum(self._of_nodes[index] for index in bits(nodes))
        return self._flops[nodes]


def _multiply_adds(value: relax.Expr) -> int:
    """Floating-point operations of convolutions and matrix products; others count nothing, since
    memory, not arithmetic, bounds them."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        name = str(value.op.name)
        if name == "relax.matmul" or name.startswith("relax.nn.conv"):
            return call_flops(value)
    return 0
