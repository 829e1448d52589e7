"""The table, as Markdown: how many of each outcome, and everything else with its reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks.cells import cell, commits_of
from benchmarks.conformance.runs import BAD, OUTCOMES
from benchmarks.zoo.results import Row

OUTSIDE = "depends on data"
"""Refusals of what is asked for nowhere: shapes that are not static."""


def page(rows: Sequence[Row]) -> str:
    """Counts by element type, then what did not pass.

    Parameters
    ----------
    rows : sequence
        One a sample.
    """
    tried = [row for row in rows if row["outcome"] in OUTCOMES]
    # Samples are not run again where they passed: several commits have a part in a table.
    commits = commits_of(tried, "samples")
    lines = [
        "# PyTorch's samples of its operators, end to end",
        "",
        "Samples of PyTorch's own lists of operators and modules (`op_db`, `module_db`) through "
        "`torch.export` and `collage.optimize` on TVM, bundled, loaded, run, and compared with "
        "eager PyTorch (`python -m benchmarks.torch_conformance`). Tensors are inputs, everything "
        "else is a constant. Left out: what is random or writes into its inputs, sparse and "
        "complex inputs and outputs, and what `torch.export` itself refuses. Static: without the "
        f"refusals of shapes that depend on data. Commits: {commits}.",
        "",
        "| element type | operators | samples | " + " | ".join(OUTCOMES) + " | static, passed |",
        "| --- | ---: | ---: | " + "---: | " * (len(OUTCOMES) + 1),
    ]
    by_dtype: dict[str, list[Row]] = defaultdict(list)
    for row in tried:
        by_dtype[row["dtype"]].append(row)
    lines += [_counts(dtype, chosen) for dtype, chosen in by_dtype.items()]
    lines.append(_counts("all", tried))
    for outcome in BAD:
        found = [row for row in tried if row["outcome"] == outcome]
        if found:
            lines += ["", f"## {outcome.capitalize()}", ""]
            lines += [f"- {row['network']}: {_cell(row)}" for row in found]
    lines += ["", "## Refused", "", *_grouped(tried, "refused")]
    return "\n".join([*lines, "", "## Left out", "", *_left_out(rows)])


def _counts(dtype: str, rows: Sequence[Row]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    static = [row for row in rows if OUTSIDE not in row.get("reason", "")]
    share = f"{100 * counts['passed'] / max(1, len(static)):.1f} %"
    operators = len({row["operator"] for row in rows})
    cells = [str(counts[outcome]) for outcome in OUTCOMES]
    return f"| {dtype} | {operators} | {len(rows)} | " + " | ".join(cells) + f" | {share} |"


def _grouped(rows: Sequence[Row], outcome: str) -> list[str]:
    """By operator and reason, how many samples."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["outcome"] == outcome:
            # Nodes are numbered, and several may fail in the same way.
            reason = re.sub(r"_\d+\b", "", _cell(row))
            found[row["operator"], reason] += 1
    lines = ["| operator | samples | reason |", "| --- | ---: | --- |"]
    return lines + [f"| {name} | {n} | {reason} |" for (name, reason), n in sorted(found.items())]


def _left_out(rows: Sequence[Row]) -> list[str]:
    """By reason, which operators."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["outcome"] == "left out":
            found[_cell(row)].add(row["operator"])
    lines = ["| reason | operators |", "| --- | --- |"]
    return lines + [
        f"| {reason} | {', '.join(sorted(of))} |" for reason, of in sorted(found.items())
    ]


def _cell(row: Row) -> str:
    return cell(str(row.get("reason", "")))
