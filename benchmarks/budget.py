"""Whether budgets are kept, and what an answer in less time is worth.

``python -m benchmarks.budget`` writes ``benchmarks/results/budget.md``; with ``--device cuda`` the
networks are in float16, of :mod:`benchmarks.gpu.networks` or the zoo, on the first GPU. Each search
is the command ``collage optimize`` in a process of its own, with no log; the time is that
process's, from its start to its end, with all imports. The bundles of one network are then timed in
turns, each in a process of its own, beside that of a search without a budget.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import onnx
import typer

from benchmarks.networks import exported
from benchmarks.networks.models import before_softmax, light_model, light_model_names
from benchmarks.timing.machine import commit, machine, now

TARGETS = {
    "cpu": ("llvm", "onednn", "openblas"),
    "cuda": ("cuda", "cutlass", "cublas", "cudnn"),
}
NETWORKS = ("resnet50", "mobilenet_v2", "bert_base")
RESULTS = Path(__file__).parent / "results"
_HERE = Path(__file__).resolve().parents[1]
_ROUNDS = 3
_CALLS = 10


@dataclass(frozen=True)
class Search:
    """One search.

    Attributes
    ----------
    asked_sec : float or None
        Its budget.
    taken_sec : float
        From the process's start to its end.
    stats : dict
        ``search`` of the command's JSON.
    load : float
        The machine's load average when it began.
    bundle : Path
        What it wrote.
    """

    asked_sec: float | None
    taken_sec: float
    stats: dict[str, Any]
    load: float
    bundle: Path


def network(name: str, device: str, folder: Path) -> Path:
    """A file of a network.

    Parameters
    ----------
    name : str
        For a CPU a light model of the ``onnx`` package, or one that
        :mod:`benchmarks.networks.exported` builds; for a GPU of :mod:`benchmarks.gpu.networks`.
    device : str
        ``cpu`` or ``cuda``.
    folder : Path
        Gets the file.
    """
    if device == "cuda":
        return _half_precision(name, folder / f"{name.replace('/', '_')}.pt2")
    place = folder / f"{name}.onnx"
    if name in light_model_names():
        model = before_softmax(light_model(name))
    else:
        model = getattr(exported, name)()
    onnx.save(model, place)
    return place


def _half_precision(name: str, place: Path) -> Path:
    import torch

    from benchmarks.gpu import networks

    module = networks.build(name).half()
    drawn = networks.network(name).inputs(1, torch.Generator().manual_seed(0))
    inputs = tuple(x.half() if x.is_floating_point() else x for x in drawn)
    torch.export.save(networks.export(module, inputs), place)
    return place


def search(model: Path, device: str, asked_sec: float | None, bundle: Path) -> Search:
    """Run one search.

    Parameters
    ----------
    model : Path
        A file.
    device : str
        ``cpu`` or ``cuda``.
    asked_sec : float or None
        The budget.
    bundle : Path
        Where the bundle goes.
    """
    options = [word for target in TARGETS[device] for word in ("-t", target)]
    if asked_sec is not None:
        options += ["--time-budget", str(asked_sec)]
    load = os.getloadavg()[0]
    begin = time.monotonic()
    answer = _collage("optimize", str(model), *options, "-o", str(bundle), "--json")
    taken_sec = time.monotonic() - begin
    return Search(asked_sec, taken_sec, answer["search"], load, bundle)


def times(bundles: list[Path]) -> list[float]:
    """The shortest call of each bundle in all rounds: what others do meanwhile only adds to it.

    Parameters
    ----------
    bundles : list of Path
        Timed in turns.
    """
    best = [float("inf")] * len(bundles)
    for _ in range(_ROUNDS):
        for index, bundle in enumerate(bundles):
            found = _collage("bench", str(bundle), "--repeat", str(_CALLS), "--json")
            best[index] = min(best[index], float(found["min_sec"]))
    return best


def page(rows: dict[str, list[tuple[Search, float]]], device: str) -> str:
    """The results as Markdown.

    Parameters
    ----------
    rows : dict
        By network its searches, the one without a budget last, each with its answer's time.
    device : str
        ``cpu`` or ``cuda``.
    """
    facts = machine()
    loads = [made.load for found in rows.values() for made, _ in found]
    crowd = f"{min(loads):.1f} to {max(loads):.1f}"
    lines = [
        "# Budgets: asked for and taken",
        "",
        "`python -m benchmarks.budget`. Seconds from the process's start to its end. Workloads:",
        "measured of those that mattered so far. Timed: contenders of all. The answer's time is",
        "relative to that of its network's last line, timed in turns.",
        "",
        f"- Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
        f"- Its load average was {crowd} as searches began: other work on the machine",
        f"- Targets {', '.join(TARGETS[device])}; no log; {now()}; commit {commit()}",
        "",
        "| network | asked, s | taken, s | ratio | load | workloads | timed | answer's time |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in rows.items():
        whole_sec = found[-1][1]
        for made, answer_sec in found:
            stats = made.stats
            known = stats["distinct_workloads"] - stats["unmeasured"]
            asked = "–" if made.asked_sec is None else f"{made.asked_sec:.0f}"
            ratio = "–" if made.asked_sec is None else f"{made.taken_sec / made.asked_sec:.2f}"
            lines.append(
                f"| {name} | {asked} | {made.taken_sec:.1f} | {ratio} | {made.load:.1f} "
                f"| {known} of {stats['distinct_workloads']} "
                f"| {stats['contenders_timed']} of {stats['contenders']} "
                f"| {answer_sec * 1e3:.2f} ms ({answer_sec / whole_sec:.2f}) |"
            )
    return "\n".join(lines) + "\n"


def main(
    networks: Annotated[list[str] | None, typer.Option("--network")] = None,
    budgets: Annotated[list[float] | None, typer.Option("--budget")] = None,
    whole: Annotated[bool, typer.Option(help="Search without a budget, too.")] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Search each network in each budget, and without one."""
    rows: dict[str, list[tuple[Search, float]]] = {}
    asked: list[float | None] = [*(budgets or (20.0, 40.0, 60.0)), *([None] if whole else [])]
    place = out or RESULTS / ("budget.md" if device == "cpu" else f"budget_{device}.md")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title in networks or NETWORKS:
            model = network(title, device, folder)
            found = [search(model, device, sec, folder / f"{model.stem}-{sec}") for sec in asked]
            answers = times([made.bundle for made in found])
            rows[title] = list(zip(found, answers, strict=True))
            typer.echo("\n".join(page(rows, device).splitlines()[-len(found) :]))
            place.write_text(page(rows, device), encoding="utf-8")


def _collage(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "collage", *arguments],
        cwd=_HERE,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    typer.run(main)
