"""How much memory a cold search holds, all of its processes together.

``python -m benchmarks.search_memory`` writes ``benchmarks/results/search_memory.md``. Each search
runs in a process of its own with neither log nor compiled objects. What it and its children hold is
read as proportional set sizes, so that a page that several share counts once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import onnx
import psutil
import typer
from onnx import ModelProto

from benchmarks.networks.exported import bert_base
from benchmarks.networks.models import before_softmax, light_model, light_model_names
from benchmarks.timing.machine import commit, machine, now

TARGETS = ("llvm", "onednn", "openblas", "openvino", "onnxruntime")
RESULTS = Path(__file__).parent / "results"
_NETWORKS = ("resnet50", "bert_base")
_PAUSE_SEC = 0.3
_MB = 1e6
_GIB = float(1 << 30)

_SEARCH = """
import sys
import collage
model, targets, budget = sys.argv[1:]
collage.optimize(model, targets.split(","), time_budget_sec=float(budget) or None)
"""


@dataclass(frozen=True)
class Peak:
    """The moment at which most was held, in bytes.

    Attributes
    ----------
    weights : int
        Of the model's file.
    total, search, largest_child : int
        All processes together, the one that searches, and the largest of its children.
    processes : int
        How many there were.
    took_sec : float
        The whole search.
    """

    weights: int
    total: int
    search: int
    largest_child: int
    processes: int
    took_sec: float

    @property
    def allowed(self) -> float:
        """Three times the weights and a gibibyte."""
        return 3 * self.weights + _GIB


def peak_of(model: ModelProto, budget_sec: float, folder: Path) -> Peak:
    """Search once and watch.

    Parameters
    ----------
    model : ModelProto
        The network.
    budget_sec : float
        Of the search; 0 for none.
    folder : Path
        Empty.

    Returns
    -------
    Peak
        Of all samples.

    Raises
    ------
    subprocess.CalledProcessError
        When the search fails.
    """
    file = folder / "model.onnx"
    onnx.save(model, file)
    command = [sys.executable, "-c", _SEARCH, str(file), ",".join(TARGETS), str(budget_sec)]
    environment = {**os.environ, "COLLAGE_CACHE_DIR": str(folder / "cache")}
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=folder)
    most: list[int] = []
    while process.poll() is None:
        sizes = _sizes(process.pid)
        if sum(sizes) > sum(most):
            most = sizes
        time.sleep(_PAUSE_SEC)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    took_sec = time.perf_counter() - begin
    weights = file.stat().st_size
    return Peak(weights, sum(most), most[0], max(most[1:], default=0), len(most), took_sec)


def _sizes(pid: int) -> list[int]:
    """Bytes of the process and then of its children; 0 of one that has ended."""
    try:
        first = psutil.Process(pid)
        return [_size(one) for one in (first, *first.children(recursive=True))]
    except psutil.NoSuchProcess:
        return [0]


def _size(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return 0


def page(peaks: dict[str, Peak], budget_sec: float) -> str:
    """The results as Markdown.

    Parameters
    ----------
    peaks : dict of str to Peak
        By the network's name.
    budget_sec : float
        As asked; 0 for none.
    """
    facts = machine()
    asked = f"a budget of {budget_sec:g} s" if budget_sec else "no budget"
    lines = [
        "# How much memory a search holds",
        "",
        f"Peak of the proportional set sizes of all processes, read every {_PAUSE_SEC} s; one cold",
        f"search each, with {asked}. Allowed: three times the weights and a gibibyte. MB.",
        "",
        f"- Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB",
        f"- Targets {', '.join(TARGETS)}; commit {commit()}; {now()}",
        "",
        "| network | weights | peak | allowed | the search | largest child | processes | s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, peak in peaks.items():
        sizes = (peak.weights, peak.total, peak.allowed, peak.search, peak.largest_child)
        cells = " | ".join(f"{size / _MB:,.0f}" for size in sizes)
        lines.append(f"| {name} | {cells} | {peak.processes} | {peak.took_sec:.0f} |")
    return "\n".join(lines) + "\n"


def _networks() -> dict[str, Callable[[], ModelProto]]:
    light = {
        name: lambda name=name: before_softmax(light_model(name)) for name in light_model_names()
    }
    return {**light, "bert_base": bert_base}


def main(
    models: Annotated[list[str] | None, typer.Argument(help="resnet50 and bert_base")] = None,
    budget: Annotated[float, typer.Option(min=0, help="Seconds of each search; 0: none.")] = 0,
    out: Annotated[Path, typer.Option()] = RESULTS / "search_memory.md",
) -> None:
    """Watch what searches hold, one after the other."""
    known = _networks()
    peaks: dict[str, Peak] = {}
    for name in models or _NETWORKS:
        if name not in known:
            raise typer.BadParameter(f"'{name}' is none of {', '.join(sorted(known))}")
        with tempfile.TemporaryDirectory(prefix="search-memory-") as folder:
            peaks[name] = peak_of(known[name](), budget, Path(folder))
        typer.echo(f"{name}: {peaks[name].total / _MB:,.0f} MB")
        out.write_text(page(peaks, budget), encoding="utf-8")
    typer.echo(f"written to {out}")


if __name__ == "__main__":
    typer.run(main)
