"""The GPU benchmark's results as JSON and as a Markdown page made from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.contest import COLLAGE, EAGER
from benchmarks.gpu.rows import Row, timed
from benchmarks.timing.statistics import Spread, ratio_spread

TORCH_COMPILE = "torch.compile"
COLUMNS = (
    "contender", f"time / {TORCH_COMPILE}", "quartiles", f"time / {EAGER}", "quartiles",
    "ms", "output difference", "prepared in",
)  # fmt: skip


@dataclass
class Record:
    """What was measured, possibly in several runs.

    Attributes
    ----------
    runs : list of dict
        Facts of each run: time, commit, machine, GPU, conditions.
    results : dict
        By ``<model>, batch <n>``, the rows and the number of the run they come from.
    settings : dict
        How each contender was set up.
    notes : list of str
        What a reader of the figures has to know; written by hand.
    """

    runs: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Of an earlier run, to go on with."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def add(self, key: str, rows: Sequence[Row]) -> None:
        """Put a contest's rows in, in place of earlier ones."""
        self.results[key] = {
            "run": len(self.runs) - 1,
            "rows": [dataclasses.asdict(row) for row in rows],
        }

    def is_done(self, key: str) -> bool:
        """Whether there are times of ours for this contest."""
        return key in self.results and COLLAGE in timed(self.rows(key))

    def rows(self, key: str) -> list[Row]:
        """A contest's rows."""
        return [Row(**row) for row in self.results[key]["rows"]]


def write(record: Record, folder: Path, name: str = "gpu") -> None:
    """Write ``<name>.json`` and ``<name>.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(record), indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(record), encoding="utf-8")


def markdown(record: Record) -> str:
    """The page: what was measured how, a summary, one table per contest."""
    lines = [
        "# GPU benchmark",
        "",
        f"Time of each contender **relative to {TORCH_COMPILE}** and to **{EAGER} PyTorch** (below "
        "1 is faster): the median over interleaved rounds of the ratio within the round, and its "
        "quartiles. Times are between CUDA events around many calls. The output difference is the "
        "largest to eager PyTorch in float32, relative to the largest value. How it is run: "
        "[docs/cuda.md](../../docs/cuda.md).",
        "",
    ]
    for number, run in enumerate(record.runs):
        lines.append(f"- Run {number}: " + "; ".join(f"{k} {_plain(v)}" for k, v in run.items()))
    lines += [f"- {note}" for note in record.notes]
    lines += ["", *summary(record)]
    for key in record.results:
        rows = record.rows(key)
        lines += ["", f"## {key}", "", *contest_table(rows)]
        lines += _details(rows, record.results[key]["run"])
    if record.settings:
        lines += ["", "## How the contenders were set up", ""]
        lines += [f"- `{name}`: {text}" for name, text in record.settings.items()]
    return "\n".join(lines) + "\n"


def summary(record: Record) -> list[str]:
    """One row per contest: ours against the peers and against its own parts."""
    lines = [
        f"| network | {COLLAGE} / {TORCH_COMPILE} | {COLLAGE} / {EAGER} | {COLLAGE} / best single |"
        " best single | chosen |",
        "| --- | ---: | ---: | ---: | --- | --- |",
    ]
    for key in record.results:
        rows = record.rows(key)
        have = timed(rows)
        if COLLAGE not in have:
            reason = next((r.failure for r in rows if r.engine == COLLAGE), "not run")
            lines.append(f"| {key} | failed: {_cell(reason)} | | | | |")
            continue
        ours = have[COLLAGE]
        singles = {n: r for n, r in have.items() if n.startswith("single:")}
        best = min(singles, key=lambda n: Spread.of(singles[n].round_sec).median, default="")
        figures = next(r.figures for r in rows if r.engine == COLLAGE)
        chosen = ", ".join(figures.get("chosen", []))
        parts = ", ".join(f"{n} {c}" for n, c in figures.get("partitions", {}).items())
        cells = [_ratio(ours, have.get(n))[0] for n in (TORCH_COMPILE, EAGER, best)]
        lines.append(f"| {key} | {' | '.join(cells)} | {best} | {chosen} ({parts}) |")
    return lines


def contest_table(rows: Sequence[Row]) -> list[str]:
    """One contest in Markdown, fastest first, and below it what failed and why."""
    have = timed(rows)
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "| --- | ---: | :---: | ---: | :---: | ---: | ---: | ---: |",
    ]
    by_name = {row.engine: row for row in rows}
    for name in sorted(have, key=lambda n: Spread.of(have[n].round_sec).median):
        times, row = have[name], by_name[name]
        difference = "" if times.difference is None else f"{times.difference:.1e}"
        shown = name if not row.same_as else f"{name} (same library as {row.same_as})"
        prepared = row.figures.get("prepare_sec", 0.0) + row.figures.get("load_sec", 0.0)
        cells = [shown, *_ratio(times, have.get(TORCH_COMPILE)), *_ratio(times, have.get(EAGER))]
        cells += [f"{Spread.of(times.round_sec).median * 1e3:.3f}", difference]
        warm = ", its cache warm" if row.figures.get("warm") and name == TORCH_COMPILE else ""
        cells.append(f"{prepared:.0f} s{warm}" if prepared and not row.same_as else "")
        lines.append("| " + " | ".join(cells) + " |")
    problems = [
        f"- {r.engine} {'was not run' if r.missing else 'failed'}: {_cell(r.failure)}"
        for r in rows
        if r.failure
    ]
    return [*lines, "", *problems] if problems else lines


def _ratio(mine: Row, reference: Row | None) -> tuple[str, str]:
    if reference is None:
        return "", ""
    spread = ratio_spread(mine.round_sec, reference.round_sec)
    return f"{spread.median:.3f}", f"{spread.lower_quartile:.3f} to {spread.upper_quartile:.3f}"


def _details(rows: Sequence[Row], run: int) -> list[str]:
    """What the search did, settings, and where the host was slower than the device."""
    lines = ["", f"Run {run}."]
    for row in rows:
        search: Mapping[str, Any] = row.figures.get("search", {})
        if search:
            counts = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in search.items())
            lines.append(f"The search: {counts}.")
        stages: Mapping[str, float] = row.figures.get("stages_sec", {})
        if stages:
            began = ", ".join(f"{name} {sec:.0f}" for name, sec in stages.items())
            lines.append(f"Its stages began after these seconds: {began}.")
        settings: Mapping[str, str] = row.figures.get("settings", {})
        if settings:
            chosen = ", ".join(f"`{name}={value}`" for name, value in settings.items())
            lines.append(f"{row.engine} with {chosen}.")
        if row.round_sec and row.wall_sec:
            waiting = Spread.of(row.wall_sec).median / Spread.of(row.round_sec).median
            if waiting > 1.2:
                lines.append(f"{row.engine}: the host's clock says {waiting:.2f} times as much.")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value)
