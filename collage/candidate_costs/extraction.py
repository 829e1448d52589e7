"""The workloads of a graph's candidates, those that are alike extracted once."""

from __future__ import annotations

import tvm

from collage.candidate_costs.likeness import Likeness, Likenesses
from collage.cost.workload.data import DataSpec
from collage.cost.workload.workload import Workload
from collage.passes import extract
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph


class Extraction:
    """Takes candidates out of a module.

    Parameters
    ----------
    mod, graph : tvm.IRModule, DataflowGraph
        The normalized module, and its ``main``.

    Attributes
    ----------
    likenesses : Likenesses
        Of the same graph.

    Examples
    --------
    >>> from tvm.relax import op
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph
    >>> (tvm_target,) = resolve_targets(["llvm"])
    >>> mod = graph([(4, 8)], lambda emit, x: op.exp(x))
    >>> extraction = Extraction(mod, DataflowGraph.from_function(mod["main"]))
    >>> extraction.workload(Candidate(0b1, tvm_target)).describe()
    'exp 4x8'
    """

    def __init__(self, mod: tvm.IRModule, graph: DataflowGraph) -> None:
        self._mod, self._graph = mod, graph
        self._weights: dict[tvm.ir.GenericConst, DataSpec] = {}
        self._workloads: dict[Likeness, Workload] = {}
        self.likenesses = Likenesses(graph, self._weights)

    def workload(self, candidate: Candidate) -> Workload:
        """A candidate's workload; extracted where no like candidate was before."""
        likeness = self.likenesses.of(candidate)
        if likeness not in self._workloads:
            module = extract(self._mod, self._graph, candidate)
            self._workloads[likeness] = Workload.from_module(module, self._weights)
        return self._workloads[likeness]
