"""The results of the operators' comparison, as JSON that is gone on with and as a page."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing.statistics import Spread

FLOOR = 1.5
"""No operator should take longer than this many times PyTorch's time."""


@dataclass
class Row:
    """One operator in one data type.

    Attributes
    ----------
    family, name, dtype : str
        Which.
    ratio : Spread or None
        Our best candidate's time over PyTorch's, round by round; none where there is no time.
    best : str
        The backend of that candidate.
    sec : dict
        Median seconds by candidate, PyTorch's as ``torch``.
    error, torch_error : float or None
        Largest differences to float64, relative to the largest value.
    bytes, flops : int, float
        What has to be moved and computed at the least.
    reason : str
        Why there is no time; or of candidates that failed.
    commit : str
        What was measured.
    """

    family: str
    name: str
    dtype: str
    ratio: dict[str, float] | None = None
    best: str = ""
    sec: dict[str, float] = field(default_factory=dict)
    error: float | None = None
    torch_error: float | None = None
    bytes: int = 0
    flops: float = 0.0
    reason: str = ""
    commit: str = ""

    @property
    def key(self) -> str:
        return f"{self.family}/{self.name}/{self.dtype}"

    @property
    def median(self) -> float:
        return self.ratio["median"] if self.ratio else float("inf")


def spread_of(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The ratio's median and quartiles."""
    return asdict(Spread.of([a / b for a, b in zip(ours, theirs, strict=True)]))


def read(path: Path) -> tuple[dict[str, Any], dict[str, Row]]:
    """Conditions and rows of an earlier run; nothing where there was none."""
    if not path.exists():
        return {}, {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**row) for row in stored["rows"]]
    return stored["conditions"], {row.key: row for row in rows}


def write(path: Path, conditions: dict[str, Any], rows: Iterable[Row]) -> None:
    """Both files; replaced, so that an interrupt leaves the earlier ones."""
    rows = list(rows)
    stored = {"conditions": conditions, "rows": [asdict(row) for row in rows]}
    for place, text in (
        (path, json.dumps(stored, indent=1)),
        (path.with_suffix(".md"), markdown(conditions, rows)),
    ):
        partial = place.with_name(place.name + ".part")
        partial.write_text(text.rstrip() + "\n", encoding="utf-8")
        partial.replace(place)


def markdown(conditions: dict[str, Any], rows: Sequence[Row]) -> str:
    """The page: the worst twenty, then every family."""
    timed = [row for row in rows if row.ratio]
    slow = [row for row in timed if row.median > FLOOR]
    lines = [
        "# Operators beside PyTorch's own kernels",
        "",
        f"{len(rows)} operators; {len(slow)} of {len(timed)} that were timed take more than "
        f"{FLOOR} times PyTorch's time, {len(rows) - len(timed)} have no time. Ratios of our best "
        "candidate to PyTorch, by rounds in turns, median and quartiles. Error: the largest "
        "difference to float64, relative to the largest value.",
        "",
        *(f"- {name}: {value}" for name, value in conditions.items()),
        "",
        "## The worst twenty",
        "",
        *_table(sorted(timed, key=lambda row: -row.median)[:20]),
        "",
    ]
    failed = [row for row in rows if not row.ratio]
    if failed:
        lines += ["## Without a time", "", "| operator | dtype | reason |", "| --- | --- | --- |"]
        lines += [
            f"| {row.family}: {_cell(row.name)} | {row.dtype} | {_cell(row.reason)} |"
            for row in failed
        ]
        lines.append("")
    lines += ["## Families", "", "| family | operators | geometric mean | worst |"]
    lines.append("| --- | ---: | ---: | ---: |")
    families: defaultdict[str, list[Row]] = defaultdict(list)
    for row in timed:
        families[row.family].append(row)
    for family, members in families.items():
        mean = statistics.geometric_mean([row.median for row in members])
        worst = max(row.median for row in members)
        lines.append(f"| {family} | {len(members)} | {mean:.2f} | {worst:.2f} |")
    lines += ["", "## All", "", *_table(timed)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    times = ["ratio", "quartiles", "PyTorch us", "ours us", "best"]
    heads = ["operator", "dtype", *times, "GB/s", "GF/s", "error"]
    lines = [
        "| " + " | ".join(heads) + " |",
        "| --- | --- | ---: | :---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        assert row.ratio is not None
        sec = row.sec[row.best]
        cells = [
            f"{row.family}: {_cell(row.name)}",
            row.dtype,
            f"{row.median:.2f}",
            f"{row.ratio['lower_quartile']:.2f} to {row.ratio['upper_quartile']:.2f}",
            f"{row.sec['torch'] * 1e6:.1f}",
            f"{sec * 1e6:.1f}",
            row.best,
            f"{row.bytes / sec * 1e-9:.0f}",
            f"{row.flops / sec * 1e-9:.0f}" if row.flops else "",
            f"{row.error:.1e}" if row.error is not None else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
