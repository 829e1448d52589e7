"""The table, as Markdown: what became of each network, and every reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.timing.machine import machine
from benchmarks.zoo.results import Row

OUTCOMES = ("right", "refused", "wrong", "crashed")
_OPERATORS = 5


def page(rows: Sequence[Row]) -> str:
    """Counts, a line a network, then why.

    Parameters
    ----------
    rows : sequence
        The newest of each network and budget.
    """
    here = machine()
    wheels = sorted({row["network"].split("/")[0] for row in rows})
    commits = ", ".join(sorted({str(row["commit"]) or "unknown" for row in rows}))
    lines = [
        "# Trained networks from public wheels",
        "",
        f"{len({row['network'] for row in rows})} ONNX files of {len(wheels)} wheels, listed "
        "before any of them was tried. Each is imported, optimized, exported, loaded and run on "
        "seeded random inputs, beside onnxruntime on the file as it is, its own "
        "optimizations off where answers are compared and on where calls are timed "
        "(`python -m benchmarks.public_models --out out/public_models`).",
        "",
        "Difference: the largest of two draws, relative to the largest value of an output; of "
        "whole numbers the share that is not equal. Networks that quantize their values as they "
        "run (`DynamicQuantize…`) are allowed steps of 1/255. Own: what onnxruntime's answer "
        "moves by when inputs move by 1e-6, and weights where values are rounded to 8-bit steps; "
        "twice that is allowed, too. Ratio: our time over "
        "onnxruntime's, calls in turns; **taken on a crowded machine, and most of them without a "
        "search: a hint at what is pathological, nothing else.** Budget 0: plain TVM, nothing "
        "measured.",
        "",
        *(f"- Budget {budget}: {_counts(rows, budget)}" for budget in _budgets(rows)),
        f"- Machine: {here['cpu']}, {here['cores']} cores",
        f"- Commits: {commits}",
        "",
        "| network | nodes | most frequent operators | outcome | difference | own | budget "
        "| optimized in s | ms | onnxruntime ms | ratio |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_line(row) for row in rows),
    ]
    reasons = [row for row in rows if row.get("reason")]
    if reasons:
        lines += ["", "## Why not", "", *map(_reason, reasons)]
    return "\n".join(lines)


def _budgets(rows: Sequence[Row]) -> list[str]:
    return sorted({row["variant"] for row in rows}, key=float)


def _counts(rows: Sequence[Row], budget: str) -> str:
    counts = Counter(row["outcome"] for row in rows if row["variant"] == budget)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


def _line(row: Row) -> str:
    operators = ", ".join(
        f"{name} {count}" for name, count in list(row.get("operators", {}).items())[:_OPERATORS]
    )
    cells = [row["network"], row.get("nodes", ""), operators, row["outcome"]]
    cells += [f"{row[name]:.1e}" if name in row else "" for name in ("difference", "own")]
    cells.append(f"{float(row['variant']):g}")
    cells.append(f"{row['optimize_sec']:.1f}" if "optimize_sec" in row else "")
    if "our_sec" in row:
        ours, peer = row["our_sec"], row["peer_sec"]
        cells += [f"{ours * 1e3:.2f}", f"{peer * 1e3:.2f}", f"{ours / peer:.2f}"]
    else:
        cells += ["", "", ""]
    return "| " + " | ".join(map(str, cells)) + " |"


def _reason(row: Row) -> str:
    reason = str(row["reason"]).replace("\n", " ")
    return f"- {row['network']} (budget {row['variant']}): {reason}"
