"""What layouts between partitions bought on a CPU: ``taskset -c 0 python -m benchmarks.layouts``.

A search with a choice of layouts, whose candidates are timed by the processor's time on one thread
in this process, so that other programs hardly matter. Its answer, the best cover with one layout
for all, plain and channels last, and each backend alone are then compiled whole and timed in turns.
``benchmarks/results/layouts.md`` has a row a network; what is named is measured anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tvm
import typer
from tvm import relax

from benchmarks.gpu.networks import build
from benchmarks.networks.models import light_model
from benchmarks.networks.pictures import NETWORKS, pictures
from benchmarks.timing.machine import commit, machine
from benchmarks.zoo.families import NETWORKS as ZOO
from collage.backends.contract import BackendTarget, BuildContext, TargetSet
from collage.backends.contract.errors import CollageError
from collage.candidate_costs import WorkloadCosts
from collage.cost.base import Cost, CostModel, CostStatus
from collage.cost.contest.interval import median_interval
from collage.cost.processes.staging import compile_to_measure
from collage.cost.reference import evaluate
from collage.cost.workload.workload import Workload
from collage.importers.torch import export_module
from collage.passes import lower
from collage.pipeline import find_covers, import_model, open_session
from collage.pipeline.imported import Imported
from collage.pipeline.layouts import with_layouts
from collage.search import Partitioning

RESULTS = Path(__file__).parent / "results"
TARGETS = ("llvm", "onednn", "openvino")
_LIGHT, _ROUNDS, _TURN_SEC = "light:", 15, 0.04

Row = dict[str, Any]
Inputs = Sequence[np.ndarray]


class ProcessTimes(CostModel):
    """Times workloads by this process's time, the median of a few turns.

    Parameters
    ----------
    targets : TargetSet
        Of all workloads.
    context : BuildContext
        Where to compile.
    """

    def __init__(self, targets: TargetSet, context: BuildContext) -> None:
        self._targets, self._context = targets, context
        self.known: dict[tuple[str, str], Cost] = {}

    def estimate(
        self, workloads: Sequence[Workload], targets: Sequence[BackendTarget]
    ) -> list[Cost]:
        """See :meth:`CostModel.estimate`."""
        return [self._cost(*both) for both in zip(workloads, targets, strict=True)]

    def _cost(self, workload: Workload, target: BackendTarget) -> Cost:
        key = workload.key, target.key()
        if key not in self.known:
            try:
                name = f"part{len(self.known)}"
                run = library(workload.materialize(0), self._targets, self._context, name)
                inputs = [np.asarray(one) for one in workload.make_inputs(0)]
                self.known[key] = Cost.of_samples([turn(run, inputs, 0.01) for _ in range(5)])
            except (CollageError, RuntimeError) as err:
                self.known[key] = Cost(CostStatus.BUILD_FAILED, reason=str(err).split("\n")[0])
        return self.known[key]


def library(
    mod: tvm.IRModule, targets: TargetSet, context: BuildContext, name: str
) -> Callable[[Inputs], Any]:
    """A partitioned module compiled: a function of arrays.

    Parameters
    ----------
    mod : tvm.IRModule
        As lowering leaves it.
    targets : TargetSet
        Of its partitions.
    context : BuildContext
        Where to compile.
    name : str
        Of the folder.
    """
    place = context.work_dir / name / "model.so"
    place.parent.mkdir(parents=True, exist_ok=True)
    built = compile_to_measure(mod, tuple(targets), place, context)
    main = relax.VirtualMachine(tvm.runtime.load_module(str(built.path)), tvm.cpu())["main"]
    held: dict[int, list[Any]] = {}

    def run(inputs: Inputs) -> Any:
        given = held.setdefault(id(inputs), [tvm.runtime.tensor(one) for one in inputs])
        return main(*given)

    return run


def turn(run: Callable[[Inputs], Any], inputs: Inputs, turn_sec: float) -> float:
    """Seconds of processor time of one call, over a turn of so many seconds."""
    run(inputs)
    begin = time.process_time()
    run(inputs)
    calls = max(1, int(turn_sec / max(time.process_time() - begin, 1e-6)))
    begin = time.process_time()
    for _ in range(calls):
        run(inputs)
    return (time.process_time() - begin) / calls


def imported(network: str, targets: TargetSet) -> Imported:
    """A network of this benchmark, of the zoo, or (``light:``) of the onnx package."""
    if network.startswith(_LIGHT):
        return import_model(light_model(network.removeprefix(_LIGHT)), targets.device)
    if network in NETWORKS:
        return import_model(pictures(network), targets.device)
    program = export_module(build(network, 0), ZOO[network].draw(0), None)
    return import_model(program, targets.device)


def compared(network: str) -> Row:
    """What layouts make of one network.

    Parameters
    ----------
    network : str
        See :func:`imported`.

    Returns
    -------
    dict
        ``ms`` and ``over``, by contender: the time, and its ratio to the answer's.
    """
    begin = time.perf_counter()
    session = open_session(TARGETS, num_threads=1)
    targets, context = session.targets, session.context
    model = with_layouts(imported(network, targets), targets.device)
    times = ProcessTimes(targets, context)
    costs = WorkloadCosts(model.mod, model.graph, times)
    covers = find_covers(model.graph, targets, "search", costs)
    inputs = model.random_inputs(1)
    expected = evaluate(model.mod, inputs)
    runs: dict[str, Callable[[Inputs], Any]] = {}
    same: dict[str, str] = {}
    keys: dict[object, str] = {}
    for contender in covers.contenders:
        name = contender.name.replace(":", "-")
        known = keys.setdefault(contender.partitioning.key(), contender.name)
        if known != contender.name:
            same[contender.name] = known
            continue
        runs[contender.name] = _whole(model, contender.partitioning, targets, context, name)
    wrong = max(_off(run(inputs), expected) for run in runs.values())
    rounds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(_ROUNDS):
        for name in list(runs) if number % 2 else list(runs)[::-1]:
            rounds[name].append(turn(runs[name], inputs, _TURN_SEC))
    return {
        "network": network,
        "commit": commit(),
        "machine": machine(),
        "tensors": len(model.graph.seams),
        "workloads": len(times.known),
        "workloads_turned": sum("permute_dims" in w for w in _described(costs)),
        "parts": sum(not c.inline for c in covers.contenders[0].partitioning.candidates),
        "said": next((r for r in covers.remarks if r.startswith("layouts")), ""),
        "ms": {name: 1e3 * float(np.median(taken)) for name, taken in rounds.items()},
        "over": {name: _over(taken, rounds["search"]) for name, taken in rounds.items()},
        "same": same,
        "largest_error": wrong,
        "sec": time.perf_counter() - begin,
    }


def _described(costs: WorkloadCosts) -> list[str]:
    found = {costs.workload(c).key: costs.workload(c) for c in costs.costs if not c.inline}
    return [workload.describe() for workload in found.values()]


def _whole(
    model: Imported, made: Partitioning, targets: TargetSet, context: BuildContext, name: str
) -> Callable[[Inputs], Any]:
    return library(lower(model.mod, model.graph, made), targets, context, name)


def _off(outputs: Any, expected: Sequence[np.ndarray]) -> float:
    """The largest difference, over the largest value."""
    first = outputs if hasattr(outputs, "numpy") else outputs[0]
    got, want = first.numpy(), np.asarray(expected[0])
    return float(np.abs(got - want).max() / np.abs(want).max())


def _over(taken: Sequence[float], answer: Sequence[float]) -> list[float]:
    found = median_interval([a / b for a, b in zip(taken, answer, strict=True)], 0.95)
    return [found.estimate, found.low, found.high]


def page(rows: Sequence[Row]) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`compared` gives them.
    """
    lines = [
        "# Layouts",
        "",
        f"`python -m benchmarks.layouts`, targets {', '.join(TARGETS)}, float32, one thread, by",
        "processor time: candidates as the median of five turns of 10 ms, whole models in",
        f"{_ROUNDS} rounds, in turns of 40 ms. The answer: a search with a choice of layouts. Over",
        "it, with 95 % intervals: the best cover with every tensor between partitions plain, with",
        "every one channels last (where it was measured), and the best backend alone.",
        "",
        "| network | tensors that may turn | that did, conversions | parts | answer, ms | "
        "plain for all | channels last for all | best alone | "
        "workloads (of these with another layout) | s | commit |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |",
        *map(_line, rows),
        "",
        *(f"- {row['network']}: {row['said'].removeprefix('layouts: ')}" for row in rows),
        "",
        f"On {rows[0]['machine']['cpu']}." if rows else "",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    singles = {n: r for n, r in row["over"].items() if n.startswith("single:")}
    best = min(singles, key=lambda name: singles[name][0], default="")
    turned = row["said"].split("between partitions, ")[-1]
    cells = [
        row["network"],
        str(row["tensors"]),
        f"{turned.split(' are')[0]}, {turned.split('with ')[1].split(' ')[0]}" if turned else "",
        str(row["parts"]),
        f"{row['ms']['search']:.3f}",
        _cell(row, "cover:plain"),
        _cell(row, "cover:channels_last"),
        f"{best.removeprefix('single:')} {_ratio(singles[best])}" if best else "the answer",
        f"{row['workloads']} ({row['workloads_turned']})",
        f"{row['sec']:.0f}",
        row["commit"][:7],
    ]
    return f"| {' | '.join(cells)} |"


def _cell(row: Row, name: str) -> str:
    if name in row["over"]:
        return _ratio(row["over"][name])
    layout = name.removeprefix("cover:")
    return "not measured" if f"{layout} for all was not" in row["said"] else "is the answer"


def _ratio(found: Sequence[float]) -> str:
    return f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def main(networks: Annotated[list[str], typer.Argument(help="names, or light:NAME")]) -> None:
    """Compare layouts on networks and write the table."""
    place = RESULTS / "layouts.json"
    rows: list[Row] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    for network in networks:
        row = compared(network)
        rows = [*(one for one in rows if one["network"] != network), row]
        place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "layouts.md").write_text(page(rows), encoding="utf-8")
        typer.echo(_line(row))
        typer.echo(row["said"])


if __name__ == "__main__":
    typer.run(main)
