"""What is asked along with others keeps busy who would be idle, and no more."""

from __future__ import annotations

from tvm.relax import op

from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph


class Many(TableCostModel):
    """Knows nothing; four workloads keep it busy."""

    def at_once(self, target: object) -> int:
        return 4


def test_idle_devices_get_other_workloads_and_equal_ones_are_free() -> None:
    mod = graph(
        [(8, 8)],
        lambda emit, x: op.exp(emit(op.nn.relu(emit(op.exp(emit(op.nn.relu(x))))))),
    )
    dataflow = DataflowGraph.from_function(mod["main"])
    targets = resolve_targets(["llvm"])
    chains = [
        Candidate(((1 << length) - 1) << first, targets.native)
        for length in (1, 2, 3)
        for first in range(5 - length)
    ]
    costs = WorkloadCosts(mod, dataflow, Many({}))
    assert costs.alongside(chains[:1], chains[1:]) == [], "nothing is known of devices yet"
    costs.ask_overheads(targets.native)
    # Four of one operator and three of two are four workloads; those of three are two more.
    assert costs.alongside(chains[:1], chains[1:]) == chains[1:7]
    assert costs.alongside(chains[:7], chains[7:]) == [], "no device is idle"
    assert costs.alongside(chains[:3], chains[7:]) == chains[7:], "there are no others"
    assert costs.alongside(chains[:8], chains[8:]) == [], "all are busy, if not all to the end"
