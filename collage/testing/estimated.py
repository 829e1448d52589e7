"""A search of one operator with made-up costs: what stages behind the covers are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.relax import op

import collage
from collage.backends.contract import TargetSet
from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.end_to_end import EstimatedComparison
from collage.pipeline import import_model, open_session
from collage.search import DataflowGraph
from collage.testing.graphs import graph


@dataclass(frozen=True)
class EstimatedSearch:
    """What a stage of the pipeline finds when it begins, without anything measured.

    Attributes
    ----------
    mod : tvm.IRModule
        Normalized.
    graph : DataflowGraph
        Of its ``main``, a single ``exp`` of 8 elements.
    targets : TargetSet
        One for each backend that has a cost.
    costs : WorkloadCosts
        Over a table.
    comparison : EstimatedComparison
        Of whole models, by those costs.
    """

    mod: tvm.IRModule
    graph: DataflowGraph
    targets: TargetSet
    costs: WorkloadCosts
    comparison: EstimatedComparison


def estimated_search(seconds: Mapping[str, float]) -> EstimatedSearch:
    """A search whose candidates take so long, by the names of their backends.

    Examples
    --------
    >>> search = estimated_search({"tvm": 2e-6, "onednn": 1e-6})
    >>> search.targets.names, len(search.graph)
    (('tvm', 'onednn'), 1)
    """
    session = open_session(["llvm" if name == "tvm" else name for name in seconds])
    imported = import_model(graph([(8,)], lambda emit, x: op.exp(x)), session.targets.device)
    mod, dataflow, targets = imported.mod, imported.graph, session.targets
    table = TableCostModel({("exp 8", name): sec for name, sec in seconds.items()})
    costs = WorkloadCosts(mod, dataflow, table)
    comparison = EstimatedComparison(mod, dataflow, targets, session.context, costs=costs)
    return EstimatedSearch(mod, dataflow, targets, costs, comparison)


def estimated_bundle(folder: Path) -> Path:
    """The folder of a bundle for TVM alone: one ``exp`` of 1 by 8 elements, nothing measured.

    Examples
    --------
    >>> sorted(path.name for path in estimated_bundle(Path("exp.bundle")).iterdir())[-1]
    'report.json'
    """
    mod = graph([(1, 8)], lambda emit, x: op.exp(x))
    costs = TableCostModel({("exp 1x8", "tvm"): 1e-6})
    return collage.optimize(mod, ["llvm"], cost_model=costs).export(folder)
