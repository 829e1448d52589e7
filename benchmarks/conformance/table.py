"""The table, as Markdown: how many of each outcome, and every refusal with its reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks.cells import cell
from benchmarks.conformance.peers import lacking
from benchmarks.conformance.runs import BAD, OUTCOMES, PEERS
from benchmarks.zoo.results import Row

OUTSIDE = ("depends on data", "element types are not computed with", "is not a type that is")
"""Refusals of what is asked for nowhere: shapes that are not static, and types not taken."""


def page(rows: Sequence[Row]) -> str:
    """Counts by choice of backends, then what did not pass.

    Parameters
    ----------
    rows : sequence
        Of all choices.
    """
    commits = ", ".join(sorted({str(row["commit"]) or "unknown" for row in rows}))
    lines = [
        "# ONNX's node cases, end to end",
        "",
        "Every case of the `onnx` wheel through `collage.optimize`, exported, loaded, run, and "
        "compared with the standard's own answers (`python -m benchmarks.conformance`). Taken: "
        "cases in which the backend itself has something to compute; in the others the program is "
        "TVM's. float32: cases of float32 with static shapes, and otherwise types that are taken. "
        f"Commits: {commits}.",
        "",
        "| backends | cases | " + " | ".join(OUTCOMES) + " | taken | float32 | of these passed |",
        "| --- | ---: | " + "---: | " * (len(OUTCOMES) + 3),
    ]
    engines, rows = lacking(rows), [row for row in rows if row["variant"] not in PEERS]
    by_choice: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_choice[row["variant"]].append(row)
    lines += [_counts(choice, chosen) for choice, chosen in by_choice.items()]
    for outcome in BAD:
        found = [row for row in rows if row["outcome"] == outcome]
        if found:
            lines += ["", f"## {outcome.capitalize()}", ""]
            lines += [f"- {row['network']} ({row['variant']}): {_cell(row)}" for row in found]
    return "\n".join([*lines, "", *engines, "## Refused", "", *_refusals(rows)])


def _counts(choice: str, rows: Sequence[Row]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    single = [
        row
        for row in rows
        if row["float32"] and not any(words in row.get("reason", "") for words in OUTSIDE)
    ]
    passed = sum(row["outcome"] == "passed" for row in single)
    share = f"{passed} ({100 * passed / max(1, len(single)):.1f} %)"
    taken = sum(bool(row.get("taken")) for row in rows)
    cells = [str(counts[outcome]) for outcome in OUTCOMES]
    cells += [str(taken) if choice != "tvm" else "", str(len(single)), share]
    return f"| {choice} | {len(rows)} | " + " | ".join(cells) + " |"


def _refusals(rows: Sequence[Row]) -> list[str]:
    """By operator and reason, how many cases; each once, whatever the backends."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        if row["outcome"] == "refused":
            found[row["operator"], _reason(row)].add(row["network"])
    lines = ["| operator | cases | reason |", "| --- | ---: | --- |"]
    for (operator, reason), names in sorted(found.items()):
        lines.append(f"| {operator} | {len(names)} | {reason} |")
    return lines


def _reason(row: Row) -> str:
    """Without what differs from case to case only: the names that a case gives its nodes."""
    return re.sub(r"_?Func_Func\w+|\bn\d+\b", "…", _cell(row))


def _cell(row: Row) -> str:
    return cell(str(row.get("reason", "")))
