"""How long a search thinks, and what memory it takes, on a table of costs.

``python -m benchmarks.search_scale`` writes ``benchmarks/results/search_scale.md`` and the picture
beside it, from one row a network in ``search_scale.json``; one that is there already on this commit
is left out. Nothing is compiled or timed: candidates are found as for a real search, each is given
a cost and a lower bound by chance, and the search asks for what it wants to know. Every row is a
process of its own; seconds are the processor's (a search runs on one thread).
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.networks.generated import generated_network
from benchmarks.timing.machine import commit, machine, now
from collage.backends.devices import CPU
from collage.pipeline.candidates import find_candidates
from collage.pipeline.imported import import_model
from collage.search import DataflowGraph, TableCosts, search
from collage.search.candidates import Candidate
from collage.search.dataflow import bits
from collage.targets import resolve_targets

RESULTS = Path(__file__).parent / "results"
TARGETS = ("llvm", "onednn", "openblas")
NETWORKS = ("nasnet_a", "densenet121", "gpt2", "generated_10000")
GOALS = {"nasnet_a": 1, "densenet121": 1, "gpt2": 1, "generated_10000": 30}
CHAINS = (1000, 2000, 5000, 10_000, 20_000)
_WIDTHS = (1, 2, 3, 4)

Row = dict[str, Any]


def build(name: str) -> DataflowGraph:
    """The graph of a network as a search for a processor sees it.

    Parameters
    ----------
    name : str
        One of ``NETWORKS``, or ``chain:`` and a number of operators.
    """
    if name.startswith("chain:"):
        size = int(name.removeprefix("chain:"))
        return DataflowGraph.from_uses([[i - 1] if i else [] for i in range(size)])
    if name.startswith("generated_"):
        size = int(name.removeprefix("generated_"))
        return DataflowGraph.from_function(generated_network(size))
    if name == "densenet121":
        from benchmarks.networks.models import light_model

        return import_model(light_model(name), CPU).graph
    import torch

    if name == "gpt2":
        from benchmarks.gpu.networks import NETWORKS as OURS

        chosen = OURS[name]
        inputs = chosen.inputs(1, torch.Generator().manual_seed(0))
        return import_model(chosen.make().eval(), CPU, example_inputs=inputs).graph
    import timm

    model = timm.create_model("nasnetalarge").eval()
    return import_model(model, CPU, example_inputs=(torch.zeros(1, 3, 331, 331),)).graph


def candidates_of(graph: DataflowGraph, name: str) -> Sequence[Candidate]:
    """What a search would choose among; of a chain, every interval of up to four operators.

    Parameters
    ----------
    graph : DataflowGraph
        Made by :func:`build`.
    name : str
        Of the network.
    """
    targets = resolve_targets(TARGETS)
    if not name.startswith("chain:"):
        return find_candidates(graph, targets).candidates
    return [
        Candidate((1 << width) - 1 << first, target)
        for target in (targets.native, targets.external[0])
        for width in _WIDTHS
        for first in range(len(graph) - width + 1)
    ]


def table_of_costs(graph: DataflowGraph, candidates: Sequence[Candidate]) -> TableCosts:
    """A cost and a lower bound for each candidate, the same ones each time.

    A binding takes 1 to 100 µs, its own; a candidate 2 µs and what its bindings take, less by a
    fifth where there are several, times what luck gives it on its target. The bound is a fifth to
    all of that.

    Parameters
    ----------
    graph : DataflowGraph
        Whose bindings the candidates hold.
    candidates : sequence of Candidate
        Inline ones are left out.
    """
    rng = random.Random(0)
    own = [1e-6 * 10 ** rng.uniform(0, 2) for _ in range(len(graph))]
    table: dict[Candidate, float] = {}
    bounds: dict[Candidate, float] = {}
    for candidate in candidates:
        if candidate.inline or candidate in table:
            continue
        inside = [own[index] for index in bits(candidate.nodes)]
        fused = 0.8 if len(inside) > 1 else 1.0
        table[candidate] = 2e-6 + fused * math.fsum(inside) * rng.uniform(0.8, 1.6)
        bounds[candidate] = table[candidate] * rng.uniform(0.2, 1.0)
    return TableCosts(table, bounds)


def measure(name: str) -> Row:
    """One search.

    Parameters
    ----------
    name : str
        See :func:`build`.

    Returns
    -------
    dict
        ``find_sec`` and ``search_sec``, ``peak_mib`` and ``before_mib`` of the process, and what
        the search had to do.
    """
    graph = build(name)
    before = time.process_time()
    candidates = candidates_of(graph, name)
    find_sec = time.process_time() - before
    costs = table_of_costs(graph, candidates)
    before_mib = _peak_mib()
    before = time.process_time()
    found = search(graph, candidates, costs, batch_size=4096)
    search_sec = time.process_time() - before
    return {
        "network": name,
        "bindings": len(graph),
        "candidates": len(candidates),
        "find_sec": find_sec,
        "search_sec": search_sec,
        "before_mib": before_mib,
        "peak_mib": _peak_mib(),
        "rounds": found.rounds,
        "asked": found.evaluated,
        "states": found.expanded,
        "optimal": found.complete,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def page(rows: Sequence[Row]) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : sequence of dict
        As :func:`measure` gives them, with commit, time and machine.
    """
    facts = rows[0]["machine"]
    networks = [row for row in rows if not row["network"].startswith("chain:")]
    chains = [row for row in rows if row["network"].startswith("chain:")]
    lines = [
        "# How long a search thinks",
        "",
        "`python -m benchmarks.search_scale`: candidates as for a real search, costs and lower",
        "bounds by chance, nothing compiled or timed. Seconds of the processor, on one thread.",
        "Found: the time that finding the candidates took, which belongs to no goal. Memory: the",
        "process's peak, and what the search itself added to it (0 where finding the candidates",
        "had taken more). States and rounds: what the search went through. Asked: the candidates",
        "whose cost it wanted to know.",
        "",
        f"- Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
        f"- Load average before each row: {', '.join(map(_load, rows))}",
        f"- Targets {', '.join(TARGETS)}; {rows[0]['when']}; commit {rows[0]['commit']}",
        "",
        "| network | operators | candidates | found, s | search, s | goal, s | peak, MiB | "
        "of the search | rounds | asked | states | proven optimal |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        *(_line(row, str(GOALS.get(row["network"], ""))) for row in networks),
        "",
        "## Chains",
        "",
        "Every interval of up to four operators, on two targets.",
        "",
        "| operators | candidates | search, s | µs an operator | peak, MiB | of the search | "
        "rounds | asked | states |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(_chain_line, chains),
        "",
        "![Seconds over operators](search_scale.svg)",
    ]
    return "\n".join(lines) + "\n"


def _load(row: Row) -> str:
    return str(row["machine"]["load_average_before"])


def _line(row: Row, goal: str) -> str:
    cells = [
        row["network"],
        f"{row['bindings']:,}",
        f"{row['candidates']:,}",
        f"{row['find_sec']:.2f}",
        f"{row['search_sec']:.2f}",
        goal,
        *_memory(row),
        str(row["rounds"]),
        f"{row['asked']:,}",
        f"{row['states']:,}",
        "yes" if row["optimal"] else "no",
    ]
    return f"| {' | '.join(cells)} |"


def _chain_line(row: Row) -> str:
    cells = [
        f"{row['bindings']:,}",
        f"{row['candidates']:,}",
        f"{row['search_sec']:.2f}",
        f"{1e6 * row['search_sec'] / row['bindings']:.0f}",
        *_memory(row),
        str(row["rounds"]),
        f"{row['asked']:,}",
        f"{row['states']:,}",
    ]
    return f"| {' | '.join(cells)} |"


def _memory(row: Row) -> tuple[str, str]:
    return f"{row['peak_mib']:.0f}", f"{row['peak_mib'] - row['before_mib']:.0f}"


def picture(rows: Sequence[Row], place: Path) -> None:
    """Seconds over operators, both logarithmic, beside a straight line.

    Parameters
    ----------
    rows : sequence of dict
        Of chains.
    place : Path
        Where it goes.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [row["bindings"] for row in rows]
    seconds = [row["search_sec"] for row in rows]
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.loglog(sizes, seconds, "o-", label="search")
    straight = [seconds[0] * size / sizes[0] for size in sizes]
    axes.loglog(sizes, straight, "--", color="grey", label="in proportion")
    axes.set_xlabel("operators of a chain")
    axes.set_ylabel("seconds")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(place, metadata={"Date": None})


def _is_there(name: str) -> bool:
    """Whether what builds a network is installed; says so where it is not."""
    library = {"nasnet_a": "timm", "gpt2": "transformers"}.get(name)
    found = library is None or importlib.util.find_spec(library) is not None
    if not found:
        typer.echo(f"{name} is left out: {library} is not installed")
    return found


def main(
    only: Annotated[str, typer.Option(help="print one row as JSON, and write nothing")] = "",
) -> None:
    """Search everything and write the table."""
    if only:
        typer.echo(json.dumps(measure(only)))
        return
    place = RESULTS / "search_scale.json"
    old: list[Row] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else []
    rows: list[Row] = [row for row in old if row["commit"] == commit()]
    for name in (*filter(_is_there, NETWORKS), *(f"chain:{size}" for size in CHAINS)):
        if any(row["network"] == name for row in rows):
            continue
        command = [sys.executable, "-m", "benchmarks.search_scale", "--only", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        facts = {"commit": commit(), "when": now(), "machine": machine()}
        rows.append({**json.loads(done.stdout.splitlines()[-1]), **facts})
        place.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        typer.echo(f"{name}: {rows[-1]['search_sec']:.2f} s")
    (RESULTS / "search_scale.md").write_text(page(rows), encoding="utf-8")
    chains = [row for row in rows if row["network"].startswith("chain:")]
    picture(chains, RESULTS / "search_scale.svg")


if __name__ == "__main__":
    typer.run(main)
