"""From what a search left behind to the report's plain values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from tvm import relax

from collage.backends.contract import BackendTarget
from collage.backends.relax.static_shape import leaf_types, tensor_dtype, tensor_shape
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostStatus
from collage.report.data import EndToEnd, Report, SearchStats
from collage.report.graph_rows import (
    Alternative,
    NodeInfo,
    PartitionInfo,
    RejectionInfo,
    shape_text,
)
from collage.report.workers import BuilderUse, WorkerUse
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph, bits
from collage.search.partitioning import Partitioning
from collage.search.rules import Rejection

_UNASKED = Cost(CostStatus.UNKNOWN, reason="not measured: the search ended without needing it")


def assemble_report(
    *,
    model: str,
    device: Mapping[str, str],
    versions: Mapping[str, str],
    targets: Sequence[BackendTarget],
    graph: DataflowGraph,
    chosen: Partitioning,
    costs: WorkloadCosts,
    candidates: Sequence[Candidate],
    rejections: Sequence[Rejection],
    end_to_end: Sequence[EndToEnd],
    stats: SearchStats,
    outputs_max_rel_diff: float | None,
    outputs_rounding_rel_diff: float | None = None,
    remarks: Sequence[str] = (),
    max_error: float | None = None,
    workers: Sequence[WorkerUse] = (),
    builders: BuilderUse | None = None,
) -> Report:
    """The report of one optimization.

    Parameters
    ----------
    model : str
        What was optimized.
    device, versions : mapping of str to str
        Of the machine; of the compiler and the libraries.
    targets : sequence of BackendTarget
        Every target given.
    graph : DataflowGraph
        What was partitioned.
    chosen : Partitioning
        What the result holds.
    costs : WorkloadCosts
        What was found out about candidates.
    candidates : sequence of Candidate
        Every one the search could choose from.
    rejections : sequence of Rejection
        Matches that are no candidates.
    end_to_end : sequence of EndToEnd
        Whole-model times.
    stats : SearchStats
        How much work the search was.
    outputs_max_rel_diff : float or None
        Largest difference to the reference's outputs, if it was compared.
    outputs_rounding_rel_diff : float or None
        What rounding alone makes of them.
    remarks : sequence of str
        On the inputs that they were compared on.
    max_error : float, optional
        The error that was allowed.
    workers : sequence of WorkerUse
        Who measured.
    builders : BuilderUse, optional
        Who built what they measured.

    Returns
    -------
    Report
        Created now.

    Examples
    --------
    >>> from collage.cost import TableCostModel
    >>> from collage.search import greedy
    >>> from collage.targets import resolve_targets
    >>> from collage.testing import graph as small_graph
    >>> targets = resolve_targets(["llvm"])
    >>> mod = small_graph([(8,)], lambda emit, x: relax.op.exp(x))
    >>> dataflow = DataflowGraph.from_function(mod["main"])
    >>> report = assemble_report(
    ...     model="exp",
    ...     device={"name": "a CPU"},
    ...     versions={},
    ...     targets=targets,
    ...     graph=dataflow,
    ...     chosen=greedy(dataflow, targets),
    ...     costs=WorkloadCosts(mod, dataflow, TableCostModel({})),
    ...     candidates=[],
    ...     rejections=[],
    ...     end_to_end=[],
    ...     stats=SearchStats(),
    ...     outputs_max_rel_diff=None,
    ... )
    >>> [(part.backend, part.nodes) for part in report.partitions]
    [('tvm', [0])]
    """
    known = costs.costs
    return Report(
        model=model,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        device=dict(device),
        versions=dict(versions),
        targets=[target.key() for target in targets],
        nodes=[_node(graph, index) for index in range(len(graph))],
        partitions=[
            _partition(i, candidate, known.get(candidate), costs)
            for i, candidate in enumerate(chosen.candidates)
        ],
        alternatives=_alternatives(dict.fromkeys(candidates, _UNASKED) | known, chosen),
        rejections=[RejectionInfo(r.node, r.backend, r.pattern, r.reason) for r in rejections],
        end_to_end=list(end_to_end),
        search=stats,
        outputs_max_rel_diff=outputs_max_rel_diff,
        outputs_rounding_rel_diff=outputs_rounding_rel_diff,
        remarks=list(remarks),
        max_error=max_error,
        workers=list(workers),
        builders=builders if builders is not None else BuilderUse(),
    )


def _node(graph: DataflowGraph, index: int) -> NodeInfo:
    var = graph.bindings[index].var
    shape, dtype = _type_text(var.ty)
    return NodeInfo(
        index, var.name, graph.op_name(index), shape, dtype, list(bits(graph.preds(index)))
    )


def _type_text(ty: relax.Type) -> tuple[str, str]:
    shapes = [(leaf, tensor_shape(leaf)) for leaf in leaf_types(ty)]
    extents = [str(leaf) if shape is None else shape_text(shape) for leaf, shape in shapes]
    dtypes = ["" if shape is None else tensor_dtype(leaf) for leaf, shape in shapes]
    return ", ".join(extents), ", ".join(dtypes)


def _partition(
    number: int, candidate: Candidate, cost: Cost | None, costs: WorkloadCosts
) -> PartitionInfo:
    valid = cost is not None and cost.is_valid and not candidate.inline
    return PartitionInfo(
        id=number,
        backend=candidate.backend,
        nodes=list(bits(candidate.nodes)),
        composites=[composite.name for composite in candidate.composites],
        rule=candidate.rule,
        median_sec=cost.median_sec if cost is not None and valid else None,
        spread_sec=cost.spread_sec if cost is not None and valid else 0.0,
        workload_key="" if candidate.inline else costs.workload(candidate).key,
        inline=candidate.inline,
        guess_sec=None if valid or candidate.inline else _guess(candidate, cost, costs),
    )


def _guess(candidate: Candidate, cost: Cost | None, costs: WorkloadCosts) -> float | None:
    unknown = cost is not None and cost.status is CostStatus.UNKNOWN
    return costs.guess(candidate) if unknown else None


def _alternatives(known: Mapping[Candidate, Cost], chosen: Partitioning) -> list[Alternative]:
    picked = {(c.nodes, c.target.key()) for c in chosen.candidates}
    return [
        Alternative(
            backend=candidate.backend,
            nodes=list(bits(candidate.nodes)),
            composites=[composite.name for composite in candidate.composites],
            rule=candidate.rule,
            status=cost.status.value,
            median_sec=cost.median_sec if cost.is_valid else None,
            spread_sec=cost.spread_sec if cost.is_valid else 0.0,
            reason=cost.reason,
            chosen=(candidate.nodes, candidate.target.key()) in picked,
            low_sec=cost.interval_sec[0] if cost.interval_sec else None,
            high_sec=cost.interval_sec[1] if cost.interval_sec else None,
            n=len(cost.samples_sec),
        )
        for candidate, cost in known.items()
        if not candidate.inline
    ]
