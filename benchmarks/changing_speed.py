"""What a search asks, and how good its answer is, on a machine whose speed changes; simulated.

``python -m benchmarks.changing_speed --label after`` writes a column of
``benchmarks/results/changing_speed.md``, from rows in ``changing_speed.json``. The candidates are
those of a real network, each with a drawn true cost; nothing is compiled or timed, and the clock
is a number. So nothing of it depends on the machine that it runs on.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from benchmarks.networks.models import light_model
from benchmarks.timing.machine import commit, now
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
from collage.testing.fixtures.loaded_machine import LoadedMachine, Pace, Seconds

RESULTS = Path(__file__).parent / "results"
TARGETS = ("llvm", "onednn", "openblas", "openvino", "onnxruntime")
_FLOPS_PER_SEC, _BYTES_PER_SEC = 2e11, 4e10
_PRODUCTS = ("relax.nn.conv", "relax.matmul")
_ROUNDS = 2
"""Of searching again by what parts took inside whole models."""

Row = dict[str, Any]


Net = tuple[tvm.IRModule, DataflowGraph, TargetSet]
"""A network, and what runs it."""


@dataclass(frozen=True)
class Scenario:
    """A machine.

    Attributes
    ----------
    name : str
    pace : callable
        Of its clock.
    noise : float
        Of each sample.
    share, burst_sec : float
        Of bursts of load, in which everything takes 1 to 3 times as long.
    """

    name: str
    pace: Pace = lambda now: 1.0
    noise: float = 0.03
    share: float = 0.0
    burst_sec: float = 0.5


def _ramp(begin: float, end: float, seconds: float) -> Pace:
    return lambda now: begin + (end - begin) * min(1.0, now / seconds)


SCENARIOS = (
    Scenario("quiet", noise=0.005),
    Scenario("samples off by 3 %"),
    Scenario("by 10 %", noise=0.1),
    Scenario("by 20 %", noise=0.2),
    Scenario("1.4 times as slow from 25 s on", lambda now: 1.4 if now > 25.0 else 1.0),
    Scenario("1.4 times as slow until 25 s", lambda now: 1.0 if now > 25.0 else 1.4),
    Scenario("ever slower, 1.4 times in 80 s", _ramp(1.0, 1.4, 80.0)),
    Scenario("ever faster, 1.4 times in 80 s", _ramp(1.4, 1.0, 80.0)),
    Scenario("bursts, a tenth of the time", share=0.1),
    Scenario("bursts, three tenths", share=0.3),
)


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
            off = random.Random(f"{seed} {workload.key} {target.key()}").gauss(0.0, 0.04)
            took = 2e-6 + workload.bytes / _BYTES_PER_SEC
            for flops, shape in _products(workload):
                draw = random.Random(f"{seed} {shape} {target.key()}").gauss(0.0, 0.15)
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
def _every(net: Net) -> WorkloadCosts:
    """Has the workloads of a network's candidates; nobody answers it."""
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


def measured(net: Net, scenario: Scenario, seeds: int) -> Row:
    """What searches asked, and their answers' regret in percent, by seed.

    Parameters
    ----------
    net : Net
        What is searched.
    scenario : Scenario
        Where.
    seeds : int
        How many searches.
    """
    asked, regret, rounds = [], [], []
    every = _every(net)
    for seed in range(seeds):
        truth = true_seconds(seed)
        load = (seed, scenario.share, scenario.burst_sec)
        machine = LoadedMachine(truth, *load, pace=scenario.pace, noise=scenario.noise)
        one = Simulated(net, machine, truth, every)
        covers = one.search()
        assert covers.result is not None
        asked.append(machine.num_timed)
        rounds.append(covers.result.rounds)
        took = one.truly(covers.contenders[0].partitioning.candidates)
        regret.append(100.0 * (took / one.least(covers) - 1.0))
    return {"machine": scenario.name, "asked": asked, "regret": regret, "rounds": rounds}


def again(net: Net, ratio: float, seeds: int) -> Row:
    """What searching again asked besides, where wholes take so many times their sums.

    Parameters
    ----------
    net : Net
        What is searched.
    ratio : float
        Of what parts take inside and alone.
    seeds : int
        How many searches.
    """
    asked, more, whole = [], [], []
    every = _every(net)
    for seed in range(seeds):
        truth = true_seconds(seed)
        machine = LoadedMachine(truth, seed, 0.0, noise=0.03)
        one = Simulated(net, machine, truth, every)
        covers = one.search()
        asked.append(machine.num_timed)
        whole.append(1e3 * one.correct(covers, inside_of(seed, ratio)))
        more.append(machine.num_timed - asked[-1])
    return {"ratio": ratio, "asked": asked, "more": more, "whole_ms": whole}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--label", choices=("before", "after"), default="after")
    args = parser.parse_args()
    place = RESULTS / "changing_speed.json"
    rows: Row = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    net = network()
    one: Row = {"commit": commit(), "when": now(), "seeds": args.seeds}
    one["again"] = [_said(again(net, ratio, args.seeds)) for ratio in (1.0, 1.1, 1.2, 1.3)]
    one["machines"] = [_said(measured(net, scenario, args.seeds)) for scenario in SCENARIOS]
    rows[args.label] = one
    place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "changing_speed.md").write_text(page(rows), encoding="utf-8")


def _said(row: Row) -> Row:
    print(row, flush=True)
    return row


def page(rows: Row) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : dict
        By label.
    """
    labels = [label for label in ("before", "after") if label in rows]
    first = rows[labels[-1]]
    commits = "; ".join(f"{label}: commit {rows[label]['commit']}" for label in labels)
    lines = [
        "# Searches on a machine whose speed changes, simulated",
        "",
        "`python -m benchmarks.changing_speed`: the candidates of ResNet-50 for "
        f"{', '.join(TARGETS)},",
        f"{first['seeds']} seeds of true costs. Means, least to most in brackets. {commits}.",
        "",
        "## Searching again by what parts take inside of models",
        "",
        "Wholes take so many times the sum of their parts. Asked: workloads that the search asked,",
        "and those that searching again asked besides; whole: the best answer, in ms.",
        "",
        *_table(rows, labels, "again", "ratio", ("asked", "more", "whole_ms")),
        "",
        "## Machines",
        "",
        "Regret, in percent: what the answer truly takes over the least.",
        "",
        *_table(rows, labels, "machines", "machine", ("asked", "regret", "rounds")),
    ]
    return "\n".join(lines) + "\n"


def _table(
    rows: Row, labels: Sequence[str], part: str, name: str, fields: Sequence[str]
) -> list[str]:
    heads = [f"{field.replace('_', ', ')} {label}" for field in fields for label in labels]
    lines = [f"| {name} | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for number, row in enumerate(rows[labels[-1]][part]):
        cells = [
            _cell(rows[label][part][number][field], 2 if field in ("regret", "whole_ms") else 0)
            for field in fields
            for label in labels
        ]
        lines.append(f"| {row[name]} | {' | '.join(cells)} |")
    return lines


def _cell(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return f"{statistics.fmean(values):.{digits}f} ({low} to {high})"


if __name__ == "__main__":
    main()
