"""Every light model, the whole way: outputs against onnxruntime, the choice against the rest.

``python -m benchmarks.light_models`` writes ``benchmarks/results/light_models.md``. Weights are
random (see ``benchmarks/networks/models.py``), outputs are compared before the last softmax, on
inputs that the search has not seen, relative to the largest value.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import typer

import collage
from benchmarks.networks.models import before_softmax, light_model, light_model_names, random_inputs
from benchmarks.timing.machine import commit, machine, now
from collage.report import EndToEnd

TARGETS = ("llvm", "onednn", "openblas")
TOLERANCE = 1e-3
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One model's result; times in seconds."""

    model: str
    chosen: EndToEnd
    best_single: EndToEnd
    max_rel_diff: float
    measured: int
    wall_sec: float

    @property
    def ratio(self) -> float:
        """The chosen partitioning's time over the best single backend's."""
        return (self.chosen.median_sec or 0.0) / (self.best_single.median_sec or 1.0)


def run(name: str, budget_sec: float, folder: Path) -> Row:
    """Optimize, export, load and compare one model."""
    model = before_softmax(light_model(name))
    begin = time.perf_counter()
    result = collage.optimize(model, TARGETS, time_budget_sec=budget_sec)
    wall_sec = time.perf_counter() - begin
    bundle = collage.load(result.export(folder / name))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    worst = 0.0
    for seed in (11, 12):
        feeds = random_inputs(model, seed)
        want = session.run(None, feeds)[0]
        got = bundle(*(feeds[info.name] for info in bundle.inputs))
        worst = max(worst, float(np.abs(got - want).max() / np.abs(want).max()))
    rows = [row for row in result.report.end_to_end if row.median_sec is not None]
    singles = [row for row in rows if row.name.startswith("single:")]
    return Row(
        model=name,
        chosen=next(row for row in rows if row.chosen),
        best_single=min(singles, key=lambda row: row.median_sec or 0.0),
        max_rel_diff=worst,
        measured=result.report.search.measured,
        wall_sec=wall_sec,
    )


def table(rows: list[Row], budget_sec: float) -> str:
    """The rows as Markdown."""
    here = machine()
    lines = [
        "# The nine light models of the onnx package, random weights",
        "",
        "Chosen: the partitioning in the bundle. Best single: the fastest of oneDNN, OpenBLAS and",
        "TVM alone, timed in alternation with it. ± is half the distance of the 10th and 90th",
        "percentile. Difference: largest to onnxruntime's output before the softmax, on two fresh",
        "inputs, relative to the largest value.",
        "",
        f"- Machine: {here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB",
        f"- Conditions: {here['cores']} threads, batch 1, float32; candidates measured for at most "
        f"{budget_sec:.0f} s per model, no earlier log",
        f"- Commit {commit() or 'unknown'}, {now()}",
        "",
        "| model | chosen | ms | best single | ms | ratio | difference | measured | search s |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row.model} | {row.chosen.name} | {_time(row.chosen)} | {row.best_single.name} | "
            f"{_time(row.best_single)} | {row.ratio:.2f} | {row.max_rel_diff:.1e} | "
            f"{row.measured} | {row.wall_sec:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _time(row: EndToEnd) -> str:
    return f"{(row.median_sec or 0.0) * 1e3:.1f} ± {row.spread_sec * 1e3:.1f}"


def main(
    model: Annotated[list[str] | None, typer.Option(help="Repeat for several; all nine.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds per model, all in all.")] = 120.0,
) -> None:
    """Optimize the light models and check them against onnxruntime."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="light-models-") as folder:
        for name in model or light_model_names():
            rows.append(run(name, budget, Path(folder)))
            typer.echo(table(rows[-1:], budget).splitlines()[-1])
            if not model:
                (RESULTS / "light_models.md").write_text(table(rows, budget), encoding="utf-8")
    wrong = [row.model for row in rows if row.max_rel_diff > TOLERANCE]
    if wrong:
        typer.echo(f"differs from onnxruntime by more than {TOLERANCE}: {', '.join(wrong)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
