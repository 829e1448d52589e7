"""``make demo``: ResNet-50 from a model file to a bundle, and how fast it is beside the others."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import collage
from collage.cost.progress import ProgressEvent
from collage.report import EndToEnd, Report, write_html

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks is not installed

from benchmarks.engines import REFERENCE, CollageEngine, Job
from benchmarks.networks.models import before_softmax, light_model
from benchmarks.timing.interleave import EngineResult, Plan, measure
from benchmarks.timing.statistics import Spread, ratio_spread

MODEL = "resnet50"
TARGETS = ("llvm", "onednn", "openblas")
OUT = Path("out/demo")
THREADS = len(os.sched_getaffinity(0))


def main() -> None:
    console = Console()
    start = time.perf_counter()
    job = Job((OUT / f"{MODEL}.onnx").resolve(), OUT.resolve(), THREADS)
    log = CollageEngine.log_file(job)
    console.print(
        f"[bold]{MODEL}[/] (the onnx package's light model with random weights, its final softmax "
        f"cut off so that outputs can be compared) for {', '.join(TARGETS)}, {THREADS} threads; "
        f"{'with the log of an earlier run' if log.exists() else 'no log yet'}"
    )
    OUT.mkdir(parents=True, exist_ok=True)
    onnx.save(before_softmax(light_model(MODEL)), job.model)

    with _Bars(console) as bars:
        result = collage.optimize(
            job.model, list(TARGETS), log=log, num_threads=THREADS, progress=bars.show
        )
    bundle = result.export(CollageEngine.bundle(job))
    console.print("Timing the bundle beside onnxruntime, in turns ...")
    ours, theirs = measure(job, [CollageEngine.name, REFERENCE], Plan(rounds=8))

    report = result.report
    if not ours.failure and not theirs.failure:
        report = replace(report, end_to_end=[*report.end_to_end, _peer(report, ours, theirs)])
        write_html(report, bundle / "report.html")
    console.print(_operators(report))
    console.print(_times(report))
    for engine in (ours, theirs):
        what = engine.failure or f"{Spread.of(engine.round_sec).median * 1e3:.2f} ms"
        console.print(f"Just now, in turns: {engine.engine} {what}", highlight=False)
    if ours.max_rel_diff is not None:
        console.print(
            f"Largest output difference to {REFERENCE}: {ours.max_rel_diff:.1e} of the largest "
            "output value (before the softmax)"
        )
    stats = report.search
    console.print(
        f"Search: {stats.candidates} candidates, {stats.distinct_workloads} distinct workloads, "
        f"{stats.measured} measured now, {stats.from_log} from the log, {stats.invalid} invalid"
    )
    for what, path in (
        ("bundle", bundle),
        ("log", log),
        ("report", bundle / "report.html"),
    ):
        console.print(f"{what:>7}: {path.relative_to(Path.cwd())}", highlight=False)
    console.print(f"{time.perf_counter() - start:.0f} s in all")
    if ours.failure or ours.max_rel_diff is None or ours.max_rel_diff > 1e-3:
        sys.exit(1)


class _Bars:
    """One progress bar per stage of the search; lines of text where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.fields[stage]:>12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line_sec = 0.0

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: ProgressEvent) -> None:
        """Draw one event."""
        is_new = event.stage not in self._tasks
        if is_new:
            self._tasks[event.stage] = self._progress.add_task("", total=None, stage=event.stage)
        self._progress.update(
            self._tasks[event.stage],
            completed=event.done,
            total=event.total or None,
            description=event.message[:60],
        )
        now = time.monotonic()
        if not self._console.is_terminal and (is_new or now - self._last_line_sec > 10):
            self._last_line_sec = now
            line = f"{event.stage} {event.done}/{event.total} {event.message}"
            self._console.print(line[:100], markup=False, highlight=False)


def _peer(report: Report, ours: EngineResult, theirs: EngineResult) -> EndToEnd:
    """The other engine's time on the scale of the report's own times.

    The two were timed in turns, by another clock than the search's: only their ratio carries over.
    """
    ratio = ratio_spread(theirs.round_sec, ours.round_sec)
    chosen = next((e.median_sec for e in report.end_to_end if e.chosen), None)
    base = chosen or Spread.of(ours.round_sec).median
    spread = base * (ratio.upper_quartile - ratio.lower_quartile) / 2
    return EndToEnd(REFERENCE, base * ratio.median, spread, ratio.n, kind="peer")


def _operators(report: Report) -> Table:
    """Which backend got which operators."""
    table = Table("backend", "partitions", "operators", title="Who runs what", title_justify="left")
    ops = {node.index: node.op for node in report.nodes}
    for backend in dict.fromkeys(p.backend for p in report.partitions if not p.inline):
        mine = [p for p in report.partitions if p.backend == backend and not p.inline]
        counts = Counter(ops[node] for partition in mine for node in partition.nodes)
        text = ", ".join(f"{count} {op}" for op, count in counts.most_common())
        table.add_row(backend, str(len(mine)), text)
    return table


def _times(report: Report) -> Table:
    """The chosen partitioning beside all others, fastest first."""
    table = Table(
        "what", "ms", "spread", "of ours", "", title="Whole model, one call", title_justify="left"
    )
    chosen = next((e.median_sec for e in report.end_to_end if e.chosen), None)
    rows = sorted(report.end_to_end, key=lambda e: e.median_sec or float("inf"))
    for row in rows:
        if row.median_sec is None:
            table.add_row(row.name, "did not run", "", "", row.note)
            continue
        ratio = f"{row.median_sec / chosen:.2f}x" if chosen else ""
        style = "bold green" if row.chosen else ""
        spread = f"{row.spread_sec * 1e3:.2f}"
        note = "in the bundle" if row.chosen else row.note
        table.add_row(row.name, f"{row.median_sec * 1e3:.2f}", spread, ratio, note, style=style)
    return table


if __name__ == "__main__":
    main()
