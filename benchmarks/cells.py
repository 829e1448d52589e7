"""What stands in the cells of the tables that several benchmarks write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def cell(text: str) -> str:
    """Text that may stand in a table of Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")


def commits_of(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    """The commits that rows were made at, with how many of ``what`` each has a part in."""
    counted = Counter(str(row["commit"]).split(" ")[0] or "unknown" for row in rows)
    return ", ".join(f"{commit} ({count} {what})" for commit, count in counted.items())
