"""A network, drawn true costs, and a search on a simulated machine; nothing is timed."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence

import tvm

from benchmarks.networks.models import light_model
from collage.backends.contract import BackendTarget, TargetSet
from collage.candidate_costs import WorkloadCosts
from collage.cost import TableCostModel
from collage.cost.deadline import NEVER
from collage.cost.measure.replay import MeasureStats
from collage.cost.workload.describe import call_flops, operator_calls
from collage.cost.workload.workload import Workload
from collage.pipeline.costing.inside_costs import InsideCosts
from collage.pipeline.covers import Covers, find_covers
from collage.pipeline.imported import import_model
from collage.pipeline.rival_contests import patience_sec
from collage.report.data import EQUAL
from collage.search import TableCosts, search
from collage.search.candidates import Candidate
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing.fixtures.loaded_machine import LoadedMachine, Seconds

TARGETS = ("llvm", "onednn", "openblas", "openvino", "onnxruntime")
_FLOPS_PER_SEC, _BYTES_PER_SEC = 2e11, 4e10
_PRODUCTS = ("relax.nn.conv", "relax.matmul")
_ROUNDS = 2
"""Of searching again by what parts took inside whole models."""

Net = tuple[tvm.IRModule, DataflowGraph, TargetSet]
"""A network, and what runs it."""


@functools.cache
def _products(workload: Workload) -> list[tuple[int, str]]:
    """What its products compute, and of what shape they are."""
    calls = [c for c in operator_calls(workload.module) if str(c.op.name).startswith(_PRODUCTS)]
    return [(call_flops(call), f"{call.args[0].ty} {call.args[1].ty}") for call in calls]


def true_seconds(seed: int) -> Seconds:
    """Drawn costs: sums of what products take, each at a speed of its own on each backend, of what
    is read and written and of the call, each sum off by 4 %."""
    found: dict[tuple[Workload, BackendTarget], float] = {}

    def seconds(workload: Workload, target: BackendTarget) -> float:
        if (workload, target) not in found:
            off = random.Random(f"{seed} {workload.key} {target.name}").gauss(0.0, 0.04)
            took = 2e-6 + workload.bytes / _BYTES_PER_SEC
            for flops, shape in _products(workload):
                draw = random.Random(f"{seed} {shape} {target.name}").gauss(0.0, 0.15)
                took += flops / _FLOPS_PER_SEC * math.exp(draw)
            found[workload, target] = took * math.exp(off)
        return found[workload, target]

    return seconds


def network(name: str = "resnet50", targets: Sequence[str] = TARGETS) -> Net:
    """A light model.

    Parameters
    ----------
    name : str
        Of it.
    targets : sequence of str
        Whose candidates there are.
    """
    resolved = resolve_targets(targets)
    imported = import_model(light_model(name), resolved.device)
    return imported.mod, imported.graph, resolved


@functools.cache
def every_workload(net: Net) -> WorkloadCosts:
    """Costs that hold the workloads of a network's candidates; nobody answers them."""
    mod, dataflow, _ = net
    return WorkloadCosts(mod, dataflow, TableCostModel({}))


class Simulated:
    """One search on a simulated machine, and searching again by what parts take inside of models.

    Parameters
    ----------
    net : Net
        What is searched.
    machine : LoadedMachine
        Times candidates.
    truth : callable
        What they truly take.
    every : WorkloadCosts, optional
        Of the same network, whose workloads were taken out before.
    """

    def __init__(
        self,
        net: Net,
        machine: LoadedMachine,
        truth: Seconds,
        every: WorkloadCosts | None = None,
    ) -> None:
        mod, self._graph, self._targets = net
        self._truth, self.machine = truth, machine
        self.costs = WorkloadCosts(mod, self._graph, machine)
        self._every = self.costs if every is None else every

    def search(self) -> Covers:
        """As it is done for real."""
        stats = MeasureStats(measured=1)

        def patience(contests: int) -> float:
            stats.seconds_measuring = self.machine.now
            return patience_sec(stats, NEVER, contests)

        return find_covers(self._graph, self._targets, "search", self.costs, patience=patience)

    def truly(self, candidates: Sequence[Candidate]) -> float:
        """What parts take while nothing else runs."""
        rows = [(self._every.workload(c), c.target) for c in candidates if not c.inline]
        return math.fsum(self._truth(*row) for row in rows)

    def least(self, covers: Covers) -> float:
        """What the best cover of all takes."""
        timed = [c for c in covers.found.candidates if not c.inline]
        seeds = [one.partitioning for one in covers.contenders]
        timed += [c for seed in seeds for c in seed.candidates if not c.inline]
        table = TableCosts({c: self.truly([c]) for c in timed})
        found = search(self._graph, covers.found.candidates, table, seeds=seeds)
        assert found.partitioning is not None
        return self.truly(found.partitioning.candidates)

    def correct(self, covers: Covers, inside: Callable[[Candidate, float], float]) -> float:
        """Search again as :class:`~collage.pipeline.improving.corrected.CorrectedSearch` does.

        Parameters
        ----------
        covers : Covers
            All of which are timed whole.
        inside : callable
            What a candidate takes inside of a model that takes so long alone.

        Returns
        -------
        float
            What the best answer takes whole.
        """
        known, seeds = InsideCosts(self.costs), [one.partitioning for one in covers.contenders]
        whole_sec = []
        for number in range(_ROUNDS + 1):
            for partitioning in seeds[-1:] if number else seeds:
                parts = [c for c in partitioning.candidates if not c.inline]
                took = {c: inside(c, self.truly([c])) for c in parts}
                known.note(took)
                whole_sec.append(math.fsum(took[c] for c in parts))
            if number < _ROUNDS:
                found = covers.found.candidates
                result = search(self._graph, found, known, seeds=seeds, tolerance=EQUAL)
                assert result.partitioning is not None
                seeds.append(result.partitioning)
        return min(whole_sec)


def inside_of(seed: int, ratio: float) -> Callable[[Candidate, float], float]:
    """Inside, candidates of a backend take so many times as long as alone, or nearly, and something
    for each call."""

    def inside(candidate: Candidate, alone_sec: float) -> float:
        drawn = random.Random(f"{seed} {candidate.backend}").gauss(0.0, 0.05)
        return 2e-6 + ratio * math.exp(drawn) * alone_sec

    return inside
