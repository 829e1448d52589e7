"""What is asked of a cost model, and what is not."""

from __future__ import annotations

import math

from tvm.relax import op

from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.cost.deadline import Deadline
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph


def test_no_question_is_prepared_once_the_time_is_up() -> None:
    """To bring thousands of candidates into canonical form takes seconds."""
    mod = graph([(8,)], lambda emit, x: op.exp(emit(op.abs(emit(op.tanh(x))))))
    dataflow = DataflowGraph.from_function(mod["main"])
    (tvm_target,) = resolve_targets(["llvm"])
    looks = iter([math.inf, math.inf])
    deadline = Deadline(lambda: next(looks, -math.inf))
    table = {(f"{name} 8", "tvm"): 1e-6 for name in ("exp", "abs", "tanh")}
    costs = WorkloadCosts(mod, dataflow, TableCostModel(table), deadline)
    singles = [Candidate(1 << index, tvm_target) for index in range(3)]
    known = costs.seconds(singles)
    assert known == [1e-6, 1e-6, None] and costs.out_of_time and costs.num_workloads == 2
    assert costs.costs[singles[2]].reason == "not measured: the time budget was spent"
