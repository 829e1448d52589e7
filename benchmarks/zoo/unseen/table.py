"""The table, as Markdown: how many of each outcome for each source, and every network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.cells import cell, commits_of
from benchmarks.conformance.runs import OUTCOMES
from benchmarks.zoo.results import Row
from benchmarks.zoo.unseen.trial import NOT_MADE, UNJUDGED

_ALL = (*OUTCOMES, UNJUDGED)


def page(rows: Sequence[Row]) -> str:
    """Counts by source and variant, then a line each.

    Parameters
    ----------
    rows : sequence
        One a network and variant.
    """
    lines = [
        "# Networks in no list of ours",
        "",
        "The smallest network of each family that installed packages have, with seeded random "
        "weights: exported and imported as `collage.optimize` does it, and evaluated in numpy "
        "(`import`), or compiled with no search and run (`tvm`, `onednn`), beside PyTorch in "
        f"float64 (`python -m benchmarks.zoo.unseen`). Commits: {commits_of(rows, 'networks')}.",
        "",
        "| source | what was done | networks | " + " | ".join(_ALL) + " | median s | left out |",
        "| --- | --- | ---: | " + "---: | " * (len(_ALL) + 2),
    ]
    groups = sorted({(_source(row), row["variant"]) for row in rows})
    lines += [_counts(source, variant, rows) for source, variant in groups]
    for variant in sorted({row["variant"] for row in rows}):
        lines += [
            "",
            f"## {variant}",
            "",
            "| network | result | s | as |",
            "| --- | --- | ---: | --- |",
        ]
        lines += [_line(row) for row in rows if row["variant"] == variant]
    return "\n".join(lines)


def _source(row: Row) -> str:
    return str(row["network"]).partition(":")[0]


def _counts(source: str, variant: str, rows: Sequence[Row]) -> str:
    mine = [row for row in rows if _source(row) == source and row["variant"] == variant]
    tried = [row for row in mine if row["outcome"] != NOT_MADE]
    counts = Counter(row["outcome"] for row in mine)
    taken = sorted(row["seconds"] for row in tried if "seconds" in row)
    median = f"{taken[len(taken) // 2]:.1f}" if taken else ""
    cells = [str(counts[outcome]) for outcome in _ALL]
    return (
        f"| {source} | {variant} | {len(tried)} | "
        + " | ".join(cells)
        + f" | {median} | {counts[NOT_MADE]} |"
    )


def _line(row: Row) -> str:
    reason = f": {cell(str(row['reason']))}" if "reason" in row else ""
    seconds = f"{row['seconds']:.1f}" if "seconds" in row else ""
    built = cell(row.get("built", ""))
    return f"| {row['network']} | {row['outcome']}{reason} | {seconds} | {built} |"
