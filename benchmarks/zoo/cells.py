"""What the zoo's tables share."""

from __future__ import annotations

from benchmarks.zoo.families import NETWORKS
from benchmarks.zoo.results import Row


def by_family(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Families by name, each with its rows by name."""
    families: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r["network"], r["variant"])):
        families.setdefault(NETWORKS[row["network"]].family, []).append(row)
    return sorted(families.items())


def commits(rows: list[Row]) -> str:
    """That the rows were made at."""
    return ", ".join(sorted({str(row["commit"]) or "unknown" for row in rows}))


def seconds(row: Row, name: str) -> str:
    """A duration, or nothing where there is none."""
    return f"{row[name]:.1f}" if name in row else ""
