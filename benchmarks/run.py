"""``make bench``: the engines side by side on whole networks. See ``benchmarks/README.md``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import onnx
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks import table
from benchmarks.engines import ENGINES, REFERENCE, Job
from benchmarks.networks.exported import BUILDERS
from benchmarks.networks.models import before_softmax, light_model
from benchmarks.networks.quantized import QUANTIZED, Quantized
from benchmarks.networks.recurrent import RECURRENT, Stack
from benchmarks.timing import machine
from benchmarks.timing.interleave import EngineResult, Plan, measure, steps
from benchmarks.timing.processes import Turn
from collage.backends.toolchain.artifact_cache import make_once

MODELS = ("resnet50", "squeezenet", "mobilenet_v2", "bert_base")
_MADE: dict[str, Stack | Quantized] = {**RECURRENT, **QUANTIZED}
_KNOWN = ", ".join((*MODELS, *_MADE))
_RESULTS = Path(__file__).resolve().parent / "results"
_QUICK = Plan(rounds=4, turn=Turn(settle_sec=0.1, turn_sec=0.25, min_calls=2))


def main(
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"Repeat for several, by default the first four: {_KNOWN}."),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help=f"Repeat for several; all: {', '.join(ENGINES)}.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each engine.", min=1)] = Plan().rounds,
    threads: Annotated[int, typer.Option(help="Of each engine.", min=1)] = 2,
    prepare_limit: Annotated[float, typer.Option(help="Seconds per engine and model.")] = 1800.0,
    out: Annotated[Path, typer.Option(help="Where the tables go.")] = _RESULTS,
    name: Annotated[str, typer.Option(help="Of the tables' files.")] = "cpu",
    work: Annotated[Path, typer.Option(help="For models, logs, bundles.")] = Path("out/bench"),
    warm: Annotated[bool, typer.Option(help="Keep earlier logs and bundles: no cold search.")] = (
        False
    ),
    quick: Annotated[bool, typer.Option(help="Fewer and shorter rounds.")] = False,
) -> None:
    """Time engines side by side and write a Markdown table and its JSON.

    Example: python -m benchmarks.run --model squeezenet --engine collage --engine onnxruntime
    """
    console = Console()
    models, engines = model or MODELS, engine or tuple(ENGINES)
    for names, known, what in (
        (engines, ENGINES, "engine"),
        (models, (*MODELS, *_MADE), "model"),
    ):
        for unknown in (n for n in names if n not in known):
            console.print(f"unknown {what} '{unknown}'; there are: {', '.join(known)}")
            raise typer.Exit(2)
    plan = Plan(rounds, prepare_limit_sec=prepare_limit)
    if quick:
        plan = Plan(_QUICK.rounds, _QUICK.turn, prepare_limit_sec=prepare_limit)
    record = table.Record(
        machine.now(),
        machine.commit(),
        machine.machine(),
        {"threads": threads, "rounds": plan.rounds, "turn": vars(plan.turn), "warm": warm},
    )
    for model_name in models:
        path = _model_file(model_name, work / "models", console)
        if path is None:
            continue
        work_dir = (work / model_name).resolve()
        if not warm:
            shutil.rmtree(work_dir, ignore_errors=True)
        job = Job(path.resolve(), work_dir, threads)
        record.results[model_name] = _measure(job, model_name, engines, plan, console)
        _show(record.results[model_name], model_name, console)
        table.write(record, out, name)  # after each model: an interrupted run keeps what it has
    console.print(f"tables: {out / name}.md and .json; logs and bundles: {work}")


def _show(results: list[EngineResult], title: str, console: Console) -> None:
    shown = Table(title=title, title_justify="left")
    for column in table.COLUMNS:
        shown.add_column(column, no_wrap=column in ("engine", "quartiles"))
    for row in table.rows(results):
        shown.add_row(*row)
    console.print(shown)
    for line in table.failures(results):
        console.print(line, markup=False)


def _measure(
    job: Job, model_name: str, engines: Sequence[str], plan: Plan, console: Console
) -> list[EngineResult]:
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bar:
        task = bar.add_task(model_name, total=steps(len(engines), plan))

        def show(step: str) -> None:
            bar.update(task, description=f"{model_name}, {step}")
            bar.advance(task)
            if not console.is_terminal and "round" not in step:
                console.print(f"{model_name}, {step}", highlight=False)

        return measure(job, engines, plan, show)


def _model_file(name: str, folder: Path, console: Console) -> Path | None:
    """Write the model; None, said aloud, where what builds it is not installed."""
    path = folder / f"{name}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    if name in _MADE:
        onnx.save(_MADE[name].model(name), path)
        return path
    if name not in BUILDERS:
        onnx.save(before_softmax(light_model(name)), path)
        return path
    if path.exists():
        return path
    missing = [m for m in ("torch", "transformers", "onnxscript") if find_spec(m) is None]
    if missing:
        console.print(f"{name} left out: {', '.join(missing)} not installed (the extra \\[bench])")
        return None
    # Elsewhere: torch's threads and memory have no place in the process that takes the times.
    command = [sys.executable, "-m", "benchmarks.networks.exported", name]

    def export(partial: Path) -> None:
        subprocess.run([*command, str(partial)], capture_output=True, text=True, check=True)

    try:
        return make_once(path, export)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        console.print(f"{name} left out: exporting it failed: {last}", markup=False)
        return None


if __name__ == "__main__":
    assert REFERENCE in ENGINES
    typer.run(main)
