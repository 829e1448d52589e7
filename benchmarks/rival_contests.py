"""What timing rivals together is worth beside a program that comes and goes, simulated.

``python -m benchmarks.rival_contests`` writes ``benchmarks/results/rival_contests.md``. Costs of a
network's candidates are drawn, and timed on a simulated machine whose other program slows
everything down by up to three times, in bursts. Regret: what the search's answer truly takes over
the least that any takes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from benchmarks.timing.machine import commit, now
from collage.backends.contract import BackendTarget, TargetSet
from collage.candidate_costs import WorkloadCosts
from collage.cost.deadline import NEVER
from collage.cost.measure.replay import MeasureStats
from collage.cost.workload.workload import Workload
from collage.pipeline.covers import find_covers
from collage.pipeline.rival_contests import patience_sec
from collage.search.dataflow import DataflowGraph
from collage.targets import resolve_targets
from collage.testing import graph
from collage.testing.fixtures.loaded_machine import LoadedMachine, Seconds

RESULTS = Path(__file__).parent / "results" / "rival_contests.md"
_SHARES = (0.0, 0.1, 0.3, 0.5, 0.7)
_BURSTS = (0.3, 3.0)
_LAYERS = 8

Net = tuple[tvm.IRModule, DataflowGraph, TargetSet]


def network(layers: int = _LAYERS) -> Net:
    """A chain of products and activations, no two of the same shape."""
    chance = np.random.default_rng(0)
    widths = [32 + 8 * number for number in range(layers + 1)]
    pairs = itertools.pairwise(widths)
    weights = [relax.const(chance.normal(size=pair).astype("float32")) for pair in pairs]

    def build(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        value: relax.Expr = x
        for number, weight in enumerate(weights):
            value = emit(op.matmul(value, weight))
            value = emit(op.nn.relu(value) if number % 2 else op.tanh(value))
        return value

    mod = graph([(64, widths[0])], build)
    targets = resolve_targets(["llvm", "onednn", "openblas"])
    return mod, DataflowGraph.from_function(mod["main"]), targets


def true_seconds(seed: int) -> Callable[[Workload, BackendTarget], float]:
    """Drawn costs: of what the arithmetic takes between 1 and 1.6 times, by workload and target,
    and something for each call."""

    def seconds(workload: Workload, target: BackendTarget) -> float:
        chance = random.Random(f"{seed} {workload.key} {target.key()}")
        return 2e-6 + (1e-6 + 1e-9 * workload.flops) * (1.0 + 0.6 * chance.random())

    return seconds


def truly(net: Net, machine: LoadedMachine, truth: Seconds) -> float:
    """What the answer of a search on a machine takes while nothing else runs.

    Parameters
    ----------
    net : (IRModule, DataflowGraph, TargetSet)
        The network.
    machine : LoadedMachine
        Asked for costs.
    truth : callable
        Those costs, as they are.
    """
    mod, dataflow, targets = net
    costs = WorkloadCosts(mod, dataflow, machine)
    # There is no log: all is measured.
    stats = MeasureStats(measured=1)

    def patience(contests: int) -> float:
        stats.seconds_measuring = machine.now
        return patience_sec(stats, NEVER, contests)

    covers = find_covers(dataflow, targets, "search", costs, patience=patience)
    parts = covers.contenders[0].partitioning.candidates
    return math.fsum(truth(costs.workload(c), c.target) for c in parts if not c.inline)


def least_seconds(net: Net, seeds: int) -> list[float]:
    """By seed, what the answer takes that is found on a quiet machine.

    Parameters
    ----------
    net : (IRModule, DataflowGraph, TargetSet)
        The network.
    seeds : int
        How many.
    """
    truths = [true_seconds(seed) for seed in range(seeds)]
    return [truly(net, LoadedMachine(one, 0, 0.0, together=False), one) for one in truths]


def regrets(
    net: Net, least: Sequence[float], share: float, burst_sec: float, *, together: bool
) -> tuple[list[float], float]:
    """Of searches with different seeds, and the share of their time that contests took.

    Parameters
    ----------
    net : (IRModule, DataflowGraph, TargetSet)
        The network.
    least : sequence of float
        By seed, from :func:`least_seconds`.
    share, burst_sec : float
        Of the load.
    together : bool
        Whether candidates may be timed together.
    """
    found, took = [], []
    for seed, least_sec in enumerate(least):
        truth = true_seconds(seed)
        machine = LoadedMachine(truth, seed, share, burst_sec, together=together)
        found.append(truly(net, machine, truth) / least_sec - 1.0)
        took.append(machine.together_sec / (machine.now - machine.together_sec))
    return found, float(np.mean(took))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    net = network()
    least = least_seconds(net, args.seeds)
    lines = []
    for share in _SHARES:
        for burst_sec in _BURSTS if share else _BURSTS[:1]:
            without, _ = regrets(net, least, share, burst_sec, together=False)
            together, took = regrets(net, least, share, burst_sec, together=True)
            cells = f"{_cells(without)} | {_cells(together)} | {took:.0%}"
            lines.append(f"| {share:.0%} | {burst_sec} | {cells} |")
            print(lines[-1], flush=True)
    args.output.write_text(_page(lines, args.seeds), encoding="utf-8")


def _cells(regrets: Sequence[float]) -> str:
    values = np.maximum(100 * np.array(regrets), 0.0)  # Ties may fall to the better one.
    return f"{values.mean():.1f} | {np.percentile(values, 90):.1f} | {values.max():.1f}"


def _page(lines: Sequence[str], seeds: int) -> str:
    head = [
        "# Timing rivals together, simulated",
        "",
        f"`python -m benchmarks.rival_contests`: a chain of {_LAYERS} products and activations,",
        f"two libraries and TVM, {seeds} seeds of costs and of load. Another program runs for a",
        "share of the time, in bursts of a mean length, each of which makes everything take 1 to 3",
        "times as long. Regret, in percent: what the search's answer truly takes over the least;",
        "the mean, nine of ten, and the worst. Without: candidates are timed alone, one after the",
        "other. With: what decides is timed once more, together; the last column is what that took",
        "of the time that the rest took (each workload: 0.2 s for building, 0.1 s of timing).",
        "",
        "| load | burst, s | without: mean | 90 % | worst | with: mean | 90 % | worst | time |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *lines,
        "",
        f"Commit {commit()}, {now()}; nothing of it depends on the machine.",
        "",
    ]
    return "\n".join(head)


if __name__ == "__main__":
    main()
