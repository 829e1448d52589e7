"""What searches on simulated machines asked, as a page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.changing_speed.simulated import TARGETS

Row = dict[str, Any]


def page(rows: Row) -> str:
    """The rows as Markdown.

    Parameters
    ----------
    rows : dict
        By label.
    """
    labels = [label for label in ("before", "after") if label in rows]
    first = rows[labels[-1]]
    commits = "; ".join(f"{label}: commit {rows[label]['commit']}" for label in labels)
    lines = [
        "# Searches on a machine whose speed changes, simulated",
        "",
        "`python -m benchmarks.changing_speed`: the candidates of ResNet-50 for "
        f"{', '.join(TARGETS)},",
        f"{first['seeds']} seeds of true costs. Means, least to most in brackets. {commits}.",
        "",
        "## Searching again by what parts take inside of models",
        "",
        "Wholes take so many times the sum of their parts. Asked: workloads that the search asked,",
        "and those that searching again asked besides; whole: the best answer, in ms.",
        "",
        *_table(rows, labels, "again", "ratio", ("asked", "more", "whole_ms")),
        "",
        "## Machines",
        "",
        "Regret, in percent: what the answer truly takes over the least.",
        "",
        *_table(rows, labels, "machines", "machine", ("asked", "regret", "rounds")),
    ]
    return "\n".join(lines) + "\n"


def _table(
    rows: Row, labels: Sequence[str], part: str, name: str, fields: Sequence[str]
) -> list[str]:
    heads = [f"{field.replace('_', ', ')} {label}" for field in fields for label in labels]
    lines = [f"| {name} | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for number, row in enumerate(rows[labels[-1]][part]):
        cells = [
            _cell(rows[label][part][number][field], 2 if field in ("regret", "whole_ms") else 0)
            for field in fields
            for label in labels
        ]
        lines.append(f"| {row[name]} | {' | '.join(cells)} |")
    return lines


def _cell(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return f"{statistics.fmean(values):.{digits}f} ({low} to {high})"
