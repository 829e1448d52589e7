"""The benchmark's results as JSON and as a Markdown page made from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engines import ENGINES, REFERENCE
from benchmarks.timing.interleave import EngineResult
from benchmarks.timing.statistics import Spread, ratio_spread


@dataclass
class Record:
    """One run of the benchmark."""

    created: str
    commit: str
    machine: Mapping[str, str]
    conditions: Mapping[str, Any]
    results: dict[str, list[EngineResult]] = field(default_factory=dict)
    """Per model, in the order of the engines."""


def write(record: Record, folder: Path, name: str) -> None:
    """Write ``<name>.json`` and ``<name>.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(record), indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(record), encoding="utf-8")


def markdown(record: Record) -> str:
    """The page: what was measured how, one table per model, how each engine was set up."""
    machine = record.machine
    lines = [
        "# CPU benchmark",
        "",
        f"Time of each engine **relative to {REFERENCE}** (below 1 is faster): the median over "
        f"{record.conditions['rounds']} interleaved rounds of the ratio within the round, and its "
        "quartiles. The time in milliseconds is the median of the rounds' medians. The output "
        f"difference is the largest to {REFERENCE}'s, relative to the largest value, before a "
        "final softmax. How it is measured: [README](../README.md).",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}",
        f"- Conditions: {record.conditions['threads']} threads each, batch 1, float32; load "
        f"average before the start {machine['load_average_before']}",
        f"- Commit {record.commit or 'unknown'}, {record.created}",
        f"- Versions: {_versions(record)}",
    ]
    for model, results in record.results.items():
        lines += ["", f"## {model}", "", *model_table(results)]
    lines += ["", "## How the engines were set up", ""]
    shown = dict.fromkeys(r.engine for results in record.results.values() for r in results)
    lines += [f"- `{name}`: {ENGINES[name].settings}" for name in shown]
    return "\n".join(lines) + "\n"


COLUMNS = ("engine", f"time / {REFERENCE}", "quartiles", "ms", "output difference", "prepared in")


def model_table(results: Sequence[EngineResult]) -> list[str]:
    """One model's rows in Markdown, fastest first, and below it what failed and why."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "| --- | ---: | :---: | ---: | ---: | ---: |",
        *("| " + " | ".join(row) + " |" for row in rows(results)),
    ]
    problems = failures(results)
    return [*lines, "", *(f"- {line}" for line in problems)] if problems else lines


def rows(results: Sequence[EngineResult]) -> list[tuple[str, ...]]:
    """The cells of one model's table, fastest engine first, without those that failed."""
    done = [r for r in results if not r.failure]
    reference = next((r for r in done if r.engine == REFERENCE), None)
    cells: list[tuple[str, ...]] = []

    def relative(result: EngineResult) -> Spread:
        """Of the ratios; where there is nothing to divide by, of the times."""
        if reference is None:
            return Spread.of(result.round_sec)
        return ratio_spread(result.round_sec, reference.round_sec)

    for result in sorted(done, key=lambda r: relative(r).median):
        ratio, quartiles = "", ""
        if reference:
            spread = relative(result)
            ratio = f"{spread.median:.3f}"
            quartiles = f"{spread.lower_quartile:.3f} to {spread.upper_quartile:.3f}"
        time_ms = f"{Spread.of(result.round_sec).median * 1e3:.2f}"
        difference = "" if result.max_rel_diff is None else f"{result.max_rel_diff:.1e}"
        cells.append((result.engine, ratio, quartiles, time_ms, difference, _prepared(result)))
    return cells


def failures(results: Sequence[EngineResult]) -> list[str]:
    """One line per engine that has no times."""
    return [
        f"{r.engine} {'was not run' if r.missing else 'failed'}: {r.failure}"
        for r in results
        if r.failure
    ]


def _prepared(result: EngineResult) -> str:
    """Seconds before the first answer: searching and building, then loading."""
    total = result.figures.get("prepare_sec", 0.0) + result.figures.get("load_sec", 0.0)
    return f"{total:.1f} s"


def _versions(record: Record) -> str:
    versions: dict[str, str] = {}
    for results in record.results.values():
        for result in results:
            versions.update(result.versions)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
